"""`disqued-spark`: the jobs on event logs, queues and stores, one verb each.

    disqued-spark VERB --help         what it does, what it reads and writes, and examples; disqued-spark help VERB
    disqued-spark VERB [options]      runs it; what it does meanwhile is told on stderr, its result on stdout

    exit status   0  done
                  1  something was found (audit, doctor --fail)
                  2  the command cannot be run so, or failed: why is on stderr
                  130  it was stopped, by Ctrl-C or SIGTERM

It may be started by itself, which runs Spark on this machine, or by `spark-submit`, which says where Spark runs.
"""

import logging
import sys
import traceback
from importlib import import_module
from keyword import iskeyword
from typing import Final

import click

from disqued.pipeline.errors import Misused
from disqued.pipeline.failures import told
from disqued.pipeline.run import DONE, FAILED
from disqued.tools.misuse import VerbGroup, line_of, walk

PROGRAM: Final = "disqued-spark"
STOPPED: Final = 130  #: as a shell says it of Ctrl-C

#: In the order in which one would use them.
VERBS: Final = {
    "ingest": "event logs of the nodes into one table",
    "lifecycle": "what became of each job: one row of it",
    "rollup": "counts and latencies by minute, hour and day",
    "slo": "latencies, and how often they were over their targets, by queue and day",
    "audit": "what was lost, done twice or left behind, by the logs of all nodes",
    "doctor": "jobs that are stuck or fail again and again, queues that nobody serves, and what to do about it",
    "report": "all of it as one file of HTML",
    "tail": "the event log on the console, as it is written",
    "consume": "queues, or a log for a group, into files of Parquet",
    "export": "jobs of queues or stores into files",
    "import": "rows of files, and jobs of stores, into queues",
    "replay": "dead jobs, and jobs that expired, into a queue once more",
}


class Verbs(VerbGroup):
    """The verbs; a module is imported when its verb is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        module = import_module(f"disqued.pipeline.commands.{name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"max_content_width": 110})
def main_group() -> None:
    """What happened in queues of disqued, computed by Spark.

    Nodes write an event log (`events all`).  `ingest` collects it into a table of Parquet; the other verbs make tables,
    verdicts and reports of that, or move jobs between queues, stores and files.
    """


def run(words: list[str]) -> int:
    """Run what a command line asks for, and return its exit status; what went wrong is told on stderr."""
    logging.getLogger().addFilter(_is_no_stop)
    try:
        if words[:1] == ["help"]:
            topics = [word for word in words[1:] if word != "help"]
            walk(click.Context(main_group, info_name=PROGRAM), [word for word in topics if not word.startswith("-")])
            words = [*topics, "--help"]
        status = main_group.main(list(words), prog_name=PROGRAM, standalone_mode=False)
    except click.UsageError as error:
        sys.stderr.write(line_of(error, main_group, PROGRAM, words) + "\n")
        return FAILED
    except click.ClickException as error:
        error.show()
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write(f"{PROGRAM}: stopped\n")
        return STOPPED
    except Misused as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return FAILED
    except ModuleNotFoundError:
        raise
    except Exception as error:  # whatever Spark may say; 1 would be a finding
        if _is_of_stop(error):
            sys.stderr.write(f"{PROGRAM}: stopped\n")
            return STOPPED
        line = told(error)
        if line is None:
            traceback.print_exc()
        else:
            sys.stderr.write(f"{PROGRAM}: {line}\n")
        return FAILED
    return status if isinstance(status, int) else DONE


def _is_no_stop(record: logging.LogRecord) -> bool:
    """Tell whether a record is no word of py4j about a signal that came while it waited: that is told in a line.

    The JVM may hear the signal first, so that its end of the connection is gone; then that is the error.
    """
    return not record.getMessage().startswith(("KeyboardInterrupt while sending", "Exception while sending"))


def _is_of_stop(error: BaseException | None) -> bool:
    """Tell whether an error came while the program was being stopped: the JVM may have heard the signal, too."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False
