"""The store `sqlite`: a database that people can read."""
