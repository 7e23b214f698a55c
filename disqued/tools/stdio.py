"""Standard streams that fail or are missing: a reader that went away (`disqued ... | head`), a full disk.

    BrokenPipeError  --> quietly, with the exit status of a program that SIGPIPE has ended
    no space left    --> one line on standard error, exit status 1
    closed (`>&-`)   --> nowhere, and no file of ours is where somebody may write to as standard output

Python tells of it by an exception, wherever something is written, or when what is buffered is written at the end.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Final

BROKEN_PIPE: Final = 141  #: 128 and the number of the signal, as a shell tells it
_STDERR: Final = 2
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def ends_quietly() -> Iterator[None]:
    """End the process cleanly when its output cannot be written."""
    try:
        try:
            yield
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # rich has ended it
                raise end.__context__ from None
            _flush()
            raise
        _flush()
    except BrokenPipeError:
        silence()
        raise SystemExit(BROKEN_PIPE) from None
    except OSError as error:
        if error.errno not in _FULL:
            raise
        silence()
        raise SystemExit(f"disqued: what is printed cannot be written: {error.strerror}") from None


def open_missing() -> None:
    """Give the process the standard streams that it was started without, before it opens anything else."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8")  # noqa: SIM115 - open for as long as the process lives
            setattr(sys, name, stream)


def _flush() -> None:
    sys.stdout.flush()


def silence() -> None:
    """Let what is buffered, and would complain at the end of the process, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
