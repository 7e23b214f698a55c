"""What a run of `disqued-spark` cannot do, in the words of whoever asked for it."""


class Misused(Exception):
    """What was asked for cannot be done so; the text says why, and what is allowed."""
