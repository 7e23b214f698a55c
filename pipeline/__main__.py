"""Where `disqued-spark` begins: with a word on what is missing, where it was installed without what it needs."""

import sys
from importlib.util import find_spec
from typing import Final

#: The packages of the extra, by the names that they are imported by.
PACKAGES: Final = ("pyspark", "pyarrow", "pandas", "sqlite_utils")
MISSING_STATUS: Final = 2


def main() -> None:
    """Run what the command line asks for, and end the process with its exit status."""
    try:
        if find_spec(PACKAGES[0]) is None:  # before a help of verbs that cannot be run
            raise ModuleNotFoundError(name=PACKAGES[0])
        from disqued.pipeline.command import run

        status = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        sys.stderr.write(
            f"disqued-spark needs the packages of disqued[spark], and {package} is not there: "
            'pip install "disqued[spark]"\n'
        )
        status = MISSING_STATUS
    raise SystemExit(status)


if __name__ == "__main__":
    main()
