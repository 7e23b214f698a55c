"""The event log: what happened to each job, as files that other programs read; not a store."""
