"""The admin side of a node: HTTP API and pages, which reach the node through its driver like any other client."""
