"""Live workers: the tasks that they hold, their heartbeats, and the node that each is homed on."""
