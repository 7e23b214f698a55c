"""disqued: a distributed, in-memory, synchronously replicated job queue."""

__version__ = "0.1.0"
