"""Glob patterns as Redis clients know them, over bytes.

    *       any bytes, none as well          [abc]    one of these
    ?       exactly one byte                 [^abc]   one other than these
    \\x      the byte x itself                [a-z]    a range, ends in either order

A `[` that is never closed reaches to the end of the pattern; a backslash at the end stands for itself.  No pattern is
an error.  Matching takes at most len(pattern) x len(text) steps: only the last star is ever tried again.

Source: the KEYS and CONFIG GET pages of the Redis manual.
"""

from typing import Final

_Token = frozenset[int] | None  #: the bytes allowed in one place; None is a star

_ANY_BYTE: Final = frozenset(range(256))
_STAR, _QUESTION, _OPEN, _CLOSE, _BACKSLASH = b"*?[]\\"


def matches(pattern: bytes, text: bytes, *, ignore_case: bool = False) -> bool:
    """Say whether `pattern` covers the whole of `text`; case is that of ASCII."""
    if ignore_case:
        pattern, text = pattern.lower(), text.lower()
    tokens = _tokens(pattern)
    token = position = 0
    star, resume = -1, 0  # the last star seen, and where in the text it was last made to end
    while position < len(text):
        if token < len(tokens):
            allowed = tokens[token]
            if allowed is None:
                star, resume = token, position
                token += 1
                continue
            if text[position] in allowed:
                token, position = token + 1, position + 1
                continue
        if star < 0:
            return False
        resume += 1
        token, position = star + 1, resume
    return all(rest is None for rest in tokens[token:])


def _tokens(pattern: bytes) -> list[_Token]:
    """Turn a pattern into what is allowed in each place."""
    tokens: list[_Token] = []
    position = 0
    while position < len(pattern):
        byte = pattern[position]
        position += 1
        if byte == _STAR:
            tokens.append(None)
        elif byte == _QUESTION:
            tokens.append(_ANY_BYTE)
        elif byte == _OPEN:
            allowed, position = _byte_class(pattern, position)
            tokens.append(allowed)
        elif byte == _BACKSLASH and position < len(pattern):
            tokens.append(frozenset((pattern[position],)))
            position += 1
        else:
            tokens.append(frozenset((byte,)))
    return tokens


def _byte_class(pattern: bytes, position: int) -> tuple[frozenset[int], int]:
    """Read what follows a `[`: the bytes it allows, and the position after its `]`."""
    negated = pattern[position : position + 1] == b"^"
    position += negated
    allowed: set[int] = set()
    while position < len(pattern) and pattern[position] != _CLOSE:
        if pattern[position] == _BACKSLASH and position + 1 < len(pattern):
            allowed.add(pattern[position + 1])
            position += 2
        elif pattern[position + 1 : position + 2] == b"-" and position + 2 < len(pattern):
            low, high = sorted((pattern[position], pattern[position + 2]))
            allowed.update(range(low, high + 1))
            position += 3
        else:
            allowed.add(pattern[position])
            position += 1
    return (_ANY_BYTE - allowed if negated else frozenset(allowed)), position + 1
