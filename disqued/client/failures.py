"""How a command can fail on its way to a node; the two say whether the node may have carried it out."""


class NotSent(Exception):
    """The node could not be reached: nothing was sent."""


class ConnectionBroken(Exception):
    """The connection broke after the command was sent."""
