"""Streams and their consumer groups, on every node that holds the entries."""
