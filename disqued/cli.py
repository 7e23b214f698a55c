"""`disqued`: the console script.

    disqued [options]     a node, in the foreground (tap.py)
    disqued TOOL ...      a tool, and then it is over

A tool is imported when it is asked for: none of them is part of a node, nor the node's event loop part of them.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

MISUSED: Final = 2  #: exit status, as that of the tools

#: Name: what it does, and the module whose `main` takes the other words and returns the exit status.
TOOLS: Final = {
    "import": ("put the jobs of a journal of Disque into a store", "disqued.tools.import_aof"),
    "export": ("write what a store holds as JSON lines or Parquet", "disqued.tools.export"),
    "ship-events": ("copy published files of the event log to another folder", "disqued.tools.ship_events"),
    "install-units": ("put the units for systemd in place", "disqued.tools.install_units"),
    "check-aof": ("examine an append-only file, and repair it", "disqued.persistence.check"),
}

HELP = "\n".join(
    [
        "disqued [options]     start a node; the options are below",
        *(f"disqued {name:<13} {summary}" for name, (summary, _) in TOOLS.items()),
        "",
        "A tool tells its own options: disqued import --help",
        "",
        "",
    ]
)


def main() -> None:
    """Run what the command line asks for, and end the process with its exit status."""
    words = sys.argv[1:]
    if not words or words[0].startswith("-"):
        _start_node(words)
        return
    name, *arguments = words
    if name not in TOOLS:
        sys.stderr.write(
            f"disqued: there is no tool '{name}'; tools are {', '.join(TOOLS)}; a node is started by options alone\n"
        )
        raise SystemExit(MISUSED)
    _, module = TOOLS[name]
    raise SystemExit(import_module(module).main(arguments))


def _start_node(words: Sequence[str]) -> None:
    from disqued import tap

    if "--help" in words:
        sys.stdout.write(HELP)
        sys.stdout.flush()
    tap.main()


if __name__ == "__main__":
    main()
