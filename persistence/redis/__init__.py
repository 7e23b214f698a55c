"""The store `redis`: jobs in a Redis server."""
