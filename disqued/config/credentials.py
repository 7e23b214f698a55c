"""Credentials that systemd passes to one service: files in the folder that CREDENTIALS_DIRECTORY names.

    LoadCredential=disqued.requirepass                                   in the unit
    requirepass-file ${CREDENTIALS_DIRECTORY}/disqued.requirepass        in our file

The variable is expanded when a path or an endpoint string is used, so that CONFIG GET and CONFIG REWRITE show the text
that was given.  No other variable is expanded.

Source: systemd.exec(5), "Credentials".
"""

import os
from collections.abc import Callable
from typing import Final

FOLDER: Final = "CREDENTIALS_DIRECTORY"
VARIABLE: Final = f"${{{FOLDER}}}"


def written_out(text: str, quoted: Callable[[str], str] = str) -> str:
    """Expand the variable to the folder, quoted as the text needs it; without a folder change nothing."""
    folder = os.environ.get(FOLDER)
    return text.replace(VARIABLE, quoted(folder)) if folder else text


def is_missing(text: str) -> bool:
    """Return whether a text names the folder and there is none."""
    return VARIABLE in text and not os.environ.get(FOLDER)
