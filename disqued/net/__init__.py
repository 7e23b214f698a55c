"""Thin Twisted adapters: sockets, timers and files around the core."""
