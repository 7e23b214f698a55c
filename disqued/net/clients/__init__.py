"""Connections of clients: requests in, commands run, replies out."""
