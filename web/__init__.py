"""The admin side of a node: HTTP API, pages and metrics, which reach the node through a `Gateway` like any client."""
