"""The command lines of the programs around disqued: argparse without its guesses.

argparse takes `--min 5` for `--minutes 5`, and so for something else as soon as there is a `--minimum`.
"""

from argparse import ArgumentParser  # noqa: TID251 - the one place
from typing import Any


class ExactParser(ArgumentParser):
    """Takes options by their whole names alone; so do the parsers of its verbs."""

    def __init__(self, *words: Any, **options: Any) -> None:
        options["allow_abbrev"] = False
        super().__init__(*words, **options)
