"""`python -m disqued.config conf | markdown`: write a document that is made from the declarations of settings."""

import sys
from collections.abc import Callable, Sequence
from typing import Final

from disqued.config import SETTINGS, conf_text, markdown_text

DOCUMENTS: Final[dict[str, Callable[..., str]]] = {"conf": conf_text, "markdown": markdown_text}


def main(arguments: Sequence[str]) -> int:
    """Write one of the documents to standard output; the exit code is 2 when none was named."""
    if len(arguments) != 1 or arguments[0] not in DOCUMENTS:
        sys.stderr.write(f"usage: python -m disqued.config {'|'.join(DOCUMENTS)}\n")
        return 2
    sys.stdout.write(DOCUMENTS[arguments[0]](SETTINGS))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
