"""The command line of the programs that run streams and are killed; both are started in the same way."""

import argparse
from pathlib import Path

from disqued.testing.arguments import ExactParser


def read_words(module: str) -> argparse.Namespace:
    """Read it: roles, address, place and master, which only Spark itself looks at."""
    parser = ExactParser(prog=f"python -m {module}")
    parser.add_argument("roles", nargs="+", choices=["source", "sink"])
    parser.add_argument("--address", required=True)
    parser.add_argument(
        "--place", type=Path, required=True, help="in it source/ and sink/ with in/, out/, state/, told/"
    )
    parser.add_argument("--master", default="local[2]", help="where Spark runs (local[2])")
    return parser.parse_args()
