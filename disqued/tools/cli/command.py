"""The options of `disqued cli`, and which way they lead: one command, a pipe, or the prompt."""

import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from disqued.tools.cli import printing
from disqued.tools.cli.batch import Runner, repeat, run_lines
from disqued.tools.cli.link import Link, Protocol
from disqued.tools.cli.redis_options import redis_options, target_by
from disqued.tools.connecting import Target, node_options
from disqued.tools.values import Seconds

MOST_INTERVAL_S: Final = 86_400.0


@click.command("cli", context_settings={"allow_interspersed_args": False})
@node_options
@redis_options
@click.option("-x", "from_stdin", is_flag=True, help="The last argument is what standard input has.")
@click.option("-r", "--repeat", "times", type=click.IntRange(min=-1), default=1, metavar="N",
              help="Run the command N times; -1 runs it until Ctrl-C.")  # fmt: skip
@click.option("-i", "--interval", type=Seconds(MOST_INTERVAL_S, zero=True), default=0.0, metavar="SECONDS",
              help="Pause between two times; parts of a second are allowed.")  # fmt: skip
@click.option("--raw", "raw", is_flag=True, help="Print replies as they are: the default where no terminal is.")
@click.option("--no-raw", "tree", is_flag=True, help="Print replies with their types: the default at a terminal.")
@click.option("--csv", "csv", is_flag=True, help="Print each reply as a line of CSV.")
@click.option("--json", "json", is_flag=True, help="Print each reply as a line of JSON, asked for in RESP3.")
@click.option("-d", "--delimiter", default="\n", metavar="TEXT", help="Stands between items of --raw; else a new line.")
@click.option("-2", "--resp2", "resp2", is_flag=True, help="Speak RESP2: the default, but for --json.")
@click.option("-3", "--resp3", "resp3", is_flag=True, help="Speak RESP3.")
@click.argument("words", metavar="[COMMAND [ARGUMENT]...]", nargs=-1, type=click.UNPROCESSED)
def command(
    target: Target, words: Sequence[str], *, from_stdin: bool, times: int, interval: float, delimiter: str, raw: bool,
    tree: bool, csv: bool, json: bool, resp2: bool, resp3: bool, uri: str | None, database: str, fails: bool,
    no_auth_warning: bool,
) -> int:  # fmt: skip
    """Talk to a node: one command, the commands of a pipe, or a prompt.

    With a COMMAND it is run and its reply printed; its arguments are taken as they are.  Without one, at a terminal,
    commands are asked for: TAB completes them, what they still want stands behind the cursor, `help COMMAND` explains
    them, and a line may begin with how often it is to be run.  From a pipe, commands are read one a line.

    Lines are split as redis-cli does: "two words\\n\\x00" with escapes, 'as it is' without.  A command may take as
    long as it does: --timeout is for connecting alone.

    The exit status is 1 when a reply was an error, or the node could not be asked.  A password that the node does not
    need is told of, and is no error.

    \b
    Examples:
      disqued cli
      disqued cli ADDJOB mail 'to: ann' 0 RETRY 60
      disqued cli -x ADDJOB mail < letter.txt
      disqued cli --json QSTAT mail
      disqued cli -r -1 -i 1 QLEN mail
      disqued cli < commands.txt
    """
    forms = {"raw": raw, "tree": tree, "csv": csv, "json": json}
    if sum(forms.values()) > 1:
        raise click.UsageError("--raw, --no-raw, --csv and --json exclude each other: one of them is allowed")
    if resp2 and resp3:
        raise click.UsageError("-2 and -3 exclude each other: one of them is allowed")
    form = next((name for name, is_given in forms.items() if is_given), None)
    spoken: Protocol = 3 if resp3 else "try" if json and not resp2 else 2
    link = Link(target_by(target, uri, database), spoken, warns=not no_auth_warning)
    at_terminal = sys.stdin.isatty() and not words
    chosen = form or ("tree" if sys.stdout.isatty() else "raw")
    runner = Runner(link, _form(chosen, os.fsencode(delimiter)), sys.stdout.buffer, for_people=chosen == "tree",
                    as_text=chosen in {"tree", "raw"})  # fmt: skip
    if from_stdin and not words:
        raise click.UsageError("-x is for the last argument of a command, and no command is given")
    try:
        if words:
            given = [os.fsencode(word) for word in words]
            repeat(runner, [*given, sys.stdin.buffer.read()] if from_stdin else given, times, interval)
        elif at_terminal:
            from disqued.tools.cli.interactive import converse

            converse(runner)
            return 0
        else:
            run_lines(runner, sys.stdin.buffer, times, interval)
    finally:
        link.close()
    return runner.status


def _form(name: str, delimiter: bytes) -> printing.Form:
    return {"tree": printing.tree, "raw": printing.raw(delimiter), "csv": printing.csv,
            "json": printing.json}[name]  # fmt: skip
