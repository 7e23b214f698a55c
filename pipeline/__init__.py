"""Journals and queues as Spark tables and streams; reads exports, and is never part of the daemon's process."""
