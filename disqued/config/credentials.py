"""Secrets that the service manager hands to one service alone: files in the folder that CREDENTIALS_DIRECTORY names.

    LoadCredential=disqued.requirepass                                   in the unit
    requirepass-file ${CREDENTIALS_DIRECTORY}/disqued.requirepass        in our file

The variable is written out in paths and endpoint strings when they are read, so that CONFIG GET and CONFIG REWRITE
show what was given.  No other variable is.

Source: systemd.exec(5), "Credentials".
"""

import os
from collections.abc import Callable
from typing import Final

FOLDER: Final = "CREDENTIALS_DIRECTORY"
VARIABLE: Final = f"${{{FOLDER}}}"


def written_out(text: str, quoted: Callable[[str], str] = str) -> str:
    """Put the folder, quoted as the text wants it, in the place of its variable; without a folder change nothing."""
    folder = os.environ.get(FOLDER)
    return text.replace(VARIABLE, quoted(folder)) if folder else text


def is_missing(text: str) -> bool:
    """Tell whether a text names the folder, and there is none."""
    return VARIABLE in text and not os.environ.get(FOLDER)
