"""Where `disqued-spark` begins: with a word on what is missing, where it was installed without what it needs."""

import sys
from importlib.util import find_spec
from typing import Final, NoReturn

#: The packages of the extra, by the names that they are imported by.
PACKAGES: Final = ("pyspark", "click", "pyarrow", "pandas", "sqlite_utils")
MISSING_STATUS: Final = 2


def main() -> None:
    """Run what the command line asks for, and end the process with its exit status."""
    if find_spec("pyspark") is None:  # a help of verbs that cannot be run would help nobody
        _refuse("pyspark")
    try:
        from disqued.pipeline.command import run

        status = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        _refuse(package)
    raise SystemExit(status)


def _refuse(package: str) -> NoReturn:
    sys.stderr.write(
        f"disqued-spark needs the packages of disqued[spark], and {package} is not there: "
        'pip install "disqued[spark]"\n'
    )
    raise SystemExit(MISSING_STATUS)


if __name__ == "__main__":
    main()
