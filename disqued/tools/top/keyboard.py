"""Keys that are pressed at a terminal, and what else ends the wait for one.

    terminal --bytes--> text --escape sequences--> names of keys: up, down, page-up, enter, escape, ... or one character
    SIGWINCH, a thread that has looked --a byte in a pipe--> no key, but the wait is over

The terminal is set back at the end of the `with`, whatever ends it.
"""

import codecs
import contextlib
import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Final

#: How terminals write keys that are no characters.
_SEQUENCES: Final = {
    "[A": "up", "OA": "up", "[B": "down", "OB": "down", "[5~": "page-up", "[6~": "page-down",
    "[H": "home", "OH": "home", "[1~": "home", "[7~": "home", "[F": "end", "OF": "end", "[4~": "end", "[8~": "end",
}  # fmt: skip
_CONTROLS: Final = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x15": "clear"}
_WHOLE: Final = re.compile(r"\[[0-9;?]*[@-~]|O[ -~]")
_BEGUN: Final = re.compile(r"\[[0-9;?]*|O|")
_ESCAPE: Final = "\x1b"
ESCAPE_S: Final = 0.05  #: after which an escape that nothing follows is the key
ENDED: Final = 143  #: 128 and the number of SIGTERM, as a shell tells it


def read_keys(text: str) -> tuple[list[str], str]:
    """Read names of keys and characters; also returns the beginning of a sequence whose rest has not come."""
    keys: list[str] = []
    while text:
        if text[0] != _ESCAPE:
            keys.append(_CONTROLS.get(text[0], text[0]))
            text = text[1:]
        elif found := _WHOLE.match(text, 1):
            name = _SEQUENCES.get(found[0])
            if name is not None:  # a key that means nothing here is left out
                keys.append(name)
            text = text[found.end() :]
        elif _BEGUN.fullmatch(text, 1):
            return keys, text
        else:
            keys.append("escape")
            text = text[1:]
    return keys, ""


class Keyboard:
    """Waits for keys, unless standard input is no terminal."""

    def __init__(self, descriptor: int | None, awaited: int, wake: int) -> None:
        self._descriptor = descriptor
        self._awaited = awaited
        self._wake = wake
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    def interrupt(self) -> None:
        """End the wait; may be called by any thread."""
        with contextlib.suppress(OSError):  # it is full, and ends anyway; or closed, and nobody waits
            os.write(self._wake, b".")

    def wait(self) -> list[str]:
        """Wait for keys, or until `interrupt` or a signal; the end of the input is a `q`."""
        sources = [self._awaited] if self._descriptor is None else [self._awaited, self._descriptor]
        readable, _, _ = select.select(sources, [], [], ESCAPE_S if self._begun else None)
        if self._awaited in readable:
            os.read(self._awaited, 1 << 12)
        if self._descriptor is None or self._descriptor not in readable:
            if readable:
                return []
            begun, self._begun = self._begun, ""
            return ["escape", *begun[1:]]
        try:
            data = os.read(self._descriptor, 1 << 12)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            return ["q"]
        keys, self._begun = read_keys(self._begun + self._decoder.decode(data))
        return keys


@contextlib.contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read single keys, unseen, for the time of the `with`; SIGTERM ends it as an exception does."""
    descriptor = sys.stdin.fileno() if sys.stdin.isatty() else None
    awaited, wake = os.pipe()
    os.set_blocking(wake, False)
    with contextlib.ExitStack() as stack:
        for end in (awaited, wake):
            stack.callback(os.close, end)
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(wake, warn_on_full_buffer=False))
        for number, handler in ((signal.SIGTERM, _end), (signal.SIGWINCH, _note)):
            stack.callback(signal.signal, number, signal.signal(number, handler))
        if descriptor is not None:
            stack.callback(termios.tcsetattr, descriptor, termios.TCSADRAIN, termios.tcgetattr(descriptor))
            tty.setcbreak(descriptor)
        yield Keyboard(descriptor, awaited, wake)


def _end(number: int, frame: object) -> None:
    raise SystemExit(ENDED)


def _note(number: int, frame: object) -> None:
    """Let the byte in the pipe end the wait."""
