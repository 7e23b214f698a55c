"""How a command can fail on its way to a node, so that what was sent is told from what was not."""


class NotSent(Exception):
    """The node could not be reached: nothing was sent."""


class Broken(Exception):
    """The connection broke after the command was sent."""
