"""Signals that were ignored when the tests were started: `nohup make test &` ignores SIGHUP and SIGINT.

A program inherits what is ignored, and then never ends by the signal that a test sends it.  A handler is not inherited:
with one that does nothing the tests stay deaf to these signals, and the programs that they start are not.
"""

import os
import signal
from types import FrameType
from typing import Final

VARIABLE: Final = "DISQUED_TEST_DEAF"
#: Python itself ignores these; `subprocess` takes care of them.
PYTHONS: Final = {signal.SIGPIPE, signal.SIGXFSZ}


def hear_for_children() -> None:
    """Let no program that is started from here on inherit a signal that is ignored or blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    ignored = {each for each in signal.valid_signals() if signal.getsignal(each) is signal.SIG_IGN} - PYTHONS
    # The processes that run tests for this one are its children, and shall be as deaf as it is.
    ignored |= {signal.Signals(int(number)) for number in os.environ.get(VARIABLE, "").split()}
    for each in ignored:
        signal.signal(each, _nothing)
    if ignored:
        os.environ[VARIABLE] = " ".join(str(int(each)) for each in sorted(ignored))


def _nothing(number: int, frame: FrameType | None) -> None:
    """Do nothing about a signal."""
