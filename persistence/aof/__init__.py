"""The store `aof`: an append-only file in segments."""
