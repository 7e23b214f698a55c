"""What was typed before, in a file of this user alone, without passwords.

`DISQUED_CLI_HISTORY` names another file than ~/.disqued_cli_history; empty, none is kept.  A line that begins with a
space is not kept either.
"""

import os
import re
from pathlib import Path
from typing import Final

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from disqued.tools.cli.command_lines import BadLine, split

VARIABLE: Final = "DISQUED_CLI_HISTORY"
_DEFAULT: Final = "~/.disqued_cli_history"
_SECRET_SETTING: Final = re.compile(rb"pass|auth|secret|token", re.IGNORECASE)


def is_secret(line: str) -> bool:
    """Tell whether a line has a password in it, or may have."""
    data = line.encode("utf-8", "surrogateescape")
    try:
        words = split(data)
    except BadLine:
        words = data.split()
    if words and words[0].isdigit():  # how often it is to be run
        words = words[1:]
    names = [word.upper() for word in words[:2]]
    if names[:1] == [b"AUTH"]:
        return True
    if names == [b"ACL", b"SETUSER"]:
        return True
    if names[:1] == [b"HELLO"]:
        return b"AUTH" in map(bytes.upper, words)
    return names == [b"CONFIG", b"SET"] and any(_SECRET_SETTING.search(word) for word in words[2::2])


class _Discreet(FileHistory):
    """Forgets at once what is secret."""

    def append_string(self, string: str) -> None:
        if not is_secret(string) and not string.startswith(" "):
            super().append_string(string)


def open_history() -> History:
    """The history of this user; one that is kept nowhere, where no file can be."""
    name = os.environ.get(VARIABLE, _DEFAULT)
    if not name:
        return InMemoryHistory()
    path = Path(os.path.expanduser(name))
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    return _Discreet(str(path))
