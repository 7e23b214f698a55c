"""`disqued`: the console script.

    disqued [options]     a node, in the foreground (tap.py)
    disqued VERB ...      a verb, and then it is over (tools/program.py)

A node imports no verb, and neither what verbs are made of; a verb imports no other, and the node's event loop when it
needs one.  A shell that wants to know how words go on asks by a variable (click's shell completion).
"""

import os
import sys
from collections.abc import Sequence

from disqued.tools.stdio import ends_quietly, open_missing
from disqued.tools.verbs import COMPLETION_VARIABLE, VERBS

HELP = "\n".join(
    [
        "disqued [options]     start a node; the options are below",
        *(f"disqued {name:<13} {summary}" for name, (summary, _) in VERBS.items()),
        "",
        "A verb tells its own options: disqued import --help, or disqued help import",
        "",
        "",
    ]
)


def main() -> None:
    """Run what the command line asks for, and end the process with its exit status."""
    words = sys.argv[1:]
    open_missing()
    with ends_quietly():
        if (not words or words[0].startswith("-")) and COMPLETION_VARIABLE not in os.environ:
            _start_node(words)
            return
        from disqued.tools.program import run

        raise SystemExit(run(words))


def _start_node(words: Sequence[str]) -> None:
    from disqued import tap

    if "--help" in words:
        sys.stdout.write(HELP)
        sys.stdout.flush()
    tap.main()


if __name__ == "__main__":
    main()
