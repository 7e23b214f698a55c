"""How a command can fail on its way to a node, with or without having been carried out."""


class NotSent(Exception):
    """The node could not be reached: nothing was sent."""


class ConnectionBroken(Exception):
    """The connection broke after the command was sent."""
