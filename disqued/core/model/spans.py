"""Spans as texts: milliseconds in, seconds out."""


def seconds_text(ms: int) -> bytes:
    """Write a span, 0 or more, in seconds: ``2``, ``0.5``; at most three decimals, no zeros at their end."""
    whole, rest = divmod(ms, 1_000)
    return (b"%d.%03d" % (whole, rest)).rstrip(b"0") if rest else b"%d" % whole
