"""The nodes of a cluster: membership, failure detection, demand for jobs, draining, notifications."""
