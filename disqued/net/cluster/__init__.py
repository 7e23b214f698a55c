"""Links between nodes, and what a node keeps about the cluster."""
