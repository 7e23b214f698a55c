"""The event loop, transports and listening sockets; nothing here knows the queue."""
