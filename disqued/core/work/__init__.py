"""Jobs: adding and replicating, queueing and delivering, acknowledging."""
