"""Where a node's jobs outlive it: the stores, and the one interface that they share."""
