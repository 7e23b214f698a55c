"""The daemon as a process: start and stop, stores, settings, logs, signals."""
