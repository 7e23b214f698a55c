"""By which of its two names the library was imported, for texts that show a line of code or a command to type."""

from typing import Final

PACKAGE: Final = __name__.removesuffix(".naming")


def install_line(extra: str = "") -> str:
    """Return the command that brings missing packages of the library, or of an extra of disqued-client."""
    if PACKAGE == "disqued.client":
        return 'pip install "disqued[client]"'
    return f'pip install "disqued-client[{extra}]"' if extra else "pip install disqued-client"
