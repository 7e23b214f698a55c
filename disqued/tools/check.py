"""`disqued check`: a node, its cluster, a queue or the journal, looked at for Nagios, Icinga and their like.

    node|cluster|queue|aof --ask--> INFO, CLUSTER NODES, QLEN, QPEEK, SHOW, TIME --> nagios.Report --> line, status

    0 OK    1 WARNING    2 CRITICAL: a node that does not answer, too
                         3 UNKNOWN: asked in a wrong way, without the right to, or for something that there is not, or
                                    the check itself failed

Ages are by the clock of the node.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import click

from disqued.client.errors import ServerError
from disqued.tools.connecting import Failed, NoAnswer, NodeConnection, Target, node_options
from disqued.tools.console_text import short
from disqued.tools.misuse import VerbGroup, explain
from disqued.tools.nagios import CheckResult, CheckState, Range, Threshold
from disqued.tools.program import is_extra, missing
from disqued.tools.stdio import silence

RANGE: Final = Threshold()
DAY_S: Final = 86_400


class Plugin(VerbGroup):
    """Verbs of a plugin: what goes wrong is said on standard output, and UNKNOWN, but for a node that is not there."""

    kind = "check"

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            _misused(error, error.ctx or click.Context(self, info_name=info_name, parent=parent), args)
        except click.ClickException as error:
            _ended(CheckState.UNKNOWN, error)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise click.exceptions.Exit(_unprinted(error)) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            below = self.get_command(ctx, str(ctx.invoked_subcommand))
            here = ctx if below is None else click.Context(below, info_name=below.name, parent=ctx)
            _misused(error, error.ctx or here, ())
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except NoAnswer as error:
            _ended(CheckState.CRITICAL, error)
        except Exception as error:  # a traceback ends with 1, which monitoring takes for WARNING
            _ended(CheckState.UNKNOWN, error)


def _misused(error: click.UsageError, context: click.Context, words: Sequence[str]) -> NoReturn:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        _ended(CheckState.UNKNOWN, error)
    _ended(CheckState.UNKNOWN, click.ClickException(explain(error, context, words)))


def _ended(state: CheckState, error: Exception) -> NoReturn:
    report = CheckResult("CHECK")
    report.add(state, _said(error))
    raise click.exceptions.Exit(_print(report))


def _said(error: Exception) -> str:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return "which check is meant? disqued check --help lists them"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, ImportError) and is_extra(error):
        return missing(error)
    return f"the check failed: {type(error).__name__}: {error}"


def _print(report: CheckResult) -> int:
    """Print the line; returns the exit status, which is that of UNKNOWN where it cannot be printed."""
    try:
        print(report.line(), flush=True)  # noqa: T201 - there may be no standard output, which `print` puts up with
    except BrokenPipeError:
        raise
    except OSError as error:  # not left to others: 1 would be taken for WARNING
        return _unprinted(error)
    return int(report.state)


def _unprinted(error: OSError) -> int:
    silence()
    click.echo(f"disqued check: what is printed cannot be written: {error.strerror}", err=True)
    return int(CheckState.UNKNOWN)


@click.group("check", cls=Plugin)
def command() -> None:
    """Look at a node for a monitoring system (Nagios, Icinga, Naemon, Zabbix).

    Each check prints one line with performance data.  The exit status is 0 for OK, 1 for WARNING, 2 for CRITICAL (a
    node that does not answer is, too), and 3 for UNKNOWN: when the node refuses to tell, or the check is misused.

    Thresholds are ranges, and what lies outside is alerted: 10 is 0 to 10, 10: is 10 and more, ~:10 is 10 and less,
    5:10 is 5 to 10, and @5:10 alerts within.

    \b
    Examples:
      disqued check node -h 10.0.0.1
      disqued check cluster --nodes 3
      disqued check queue mail -w 60 -c 300 --warning-length 1000
      disqued check aof --password-file /etc/nagios/disqued.password
    """


@command.command("node")
@node_options
@click.option("-w", "--warning", type=RANGE, default="75", show_default=True, help="Range of the memory in use, in %.")
@click.option("-c", "--critical", type=RANGE, default="95", show_default=True, help="The same, for CRITICAL.")
@click.option("--warning-certificate", type=RANGE, default="30:", show_default=True,
              help="Range of the days that are left to the certificate that ends first.")  # fmt: skip
@click.option("--critical-certificate", type=RANGE, default="7:", show_default=True, help="The same, for CRITICAL.")
def check_node(
    target: Target, *, warning: Range, critical: Range, warning_certificate: Range, critical_certificate: Range
) -> int:
    """Check that a node answers, has loaded its jobs, can write them, and has memory left.

    Of a node with TLS its certificates are looked at, too: those for clients, for other nodes, and for the admin page.

    \b
    Examples:
      disqued check node
      disqued check node -w 60 -c 80 --warning-certificate 14:
    """
    report = CheckResult("NODE")
    with target.node() as node:
        info = read_info(node)
    if info.get("loading") == "1":
        report.add(CheckState.WARNING, "the node is loading its jobs")
    if info.get("aof_last_write_status", "ok") != "ok":
        report.add(CheckState.CRITICAL, "the last write to the store failed")
    if info.get("internal_errors", "0") != "0":
        report.add(CheckState.WARNING, f"{info['internal_errors']} internal errors; the log has them")
    used, most = int(info["used_memory"]), int(info["maxmemory"])
    percent = 100 * used / most if most else 0.0
    report.figure("memory", percent, "%", warning=warning, critical=critical, most=100,
                  problem=f"{percent:.1f} % of the memory is in use")  # fmt: skip
    _check_certificates(report, info, warning_certificate, critical_certificate)
    for label, name in (("jobs", "registered_jobs"), ("queues", "registered_queues"), ("clients", "connected_clients")):
        report.figure(label, int(info[name]))
    report.figure("uptime", int(info["uptime_in_seconds"]), "s")
    report.facts = f"{target} has {info['registered_jobs']} jobs, {percent:.1f} % of the memory in use"
    return _print(report)


def _check_certificates(report: CheckResult, info: Mapping[str, str], warning: Range, critical: Range) -> None:
    """Look at the certificate that ends first; there is none without TLS."""
    if "tls_certificate_expires_in_seconds" not in info:
        return
    days = int(info["tls_certificate_expires_in_seconds"]) / DAY_S
    ends = f"ends in {days:.1f} days" if days > 0 else f"ended {-days:.1f} days ago"
    report.figure("certificate", max(0.0, days), warning=warning, critical=critical,
                  problem=f"the certificate of {info['tls_certificate_expires_first']} {ends}")  # fmt: skip


@command.command("cluster")
@node_options
@click.option(
    "--nodes", "wanted", type=click.IntRange(min=1), metavar="N", help="How many nodes have to be there, this one too."
)
def check_cluster(target: Target, wanted: int | None) -> int:
    """Check that a node sees the others of its cluster.

    A node that has failed is CRITICAL, one that is suspected WARNING; so is the state of the cluster.

    \b
    Examples:
      disqued check cluster
      disqued check cluster --nodes 3
    """
    report = CheckResult("CLUSTER")
    with target.node() as node:
        flags = read_flags(node)
        facts = read_lines(node.call("CLUSTER", "INFO"))
    failed = [name for name, words in flags.items() if "fail" in words]
    suspected = [name for name, words in flags.items() if "fail?" in words]
    there = len(flags) - len(failed) - len(suspected) - sum("handshake" in words for words in flags.values())
    if failed:
        report.add(CheckState.CRITICAL, f"failed: {', '.join(failed)}")
    if facts.get("cluster_state", "ok") != "ok":
        report.add(CheckState.CRITICAL, f"the state of the cluster is {facts['cluster_state']}")
    if wanted is not None and there < wanted:
        report.add(CheckState.CRITICAL, f"{there} of {wanted} nodes are there")
    if suspected:
        report.add(CheckState.WARNING, f"suspected to have failed: {', '.join(suspected)}")
    report.figure("nodes", there)
    report.figure("failed", len(failed))
    report.figure("suspected", len(suspected))
    report.facts = "1 node is there" if there == 1 else f"{there} nodes are there"
    return _print(report)


@command.command("queue")
@node_options
@click.argument("queue")
@click.option("-w", "--warning", type=RANGE, help="Range of the age of the oldest job that waits, in seconds.")
@click.option("-c", "--critical", type=RANGE, help="The same, for CRITICAL.")
@click.option("--warning-length", type=RANGE, help="Range of how many jobs wait.")
@click.option("--critical-length", type=RANGE, help="The same, for CRITICAL.")
def check_queue(
    target: Target, queue: str, *, warning: Range | None, critical: Range | None, warning_length: Range | None,
    critical_length: Range | None,
) -> int:  # fmt: skip
    """Check how many jobs wait in a queue of one node, and how old the oldest is.

    A queue that is empty, or was never there, has no jobs, and its oldest is 0 seconds old.

    \b
    Examples:
      disqued check queue mail -w 60 -c 300
      disqued check queue mail -c 600 --warning-length 1000 --critical-length 10000
    """
    if not queue:
        raise click.UsageError("QUEUE is empty, as of a variable that is not set; allowed are names of queues")
    report, name = CheckResult("QUEUE"), short(queue)
    with target.node() as node:
        length, age = int(node.call("QLEN", queue)), oldest_age(node, queue)
    report.figure(
        "age", age, "s", warning=warning, critical=critical, problem=f"{name}: the oldest job is {age:.0f} s old"
    )
    report.figure(
        "length", length, warning=warning_length, critical=critical_length, problem=f"{name}: {length} jobs wait"
    )
    report.facts = f"{name}: {length} jobs wait, the oldest for {age:.0f} s"
    return _print(report)


@command.command("aof")
@node_options
@click.option("-w", "--warning", type=RANGE, help="Range of how long a rewrite may be under way, in seconds.")
@click.option("-c", "--critical", type=RANGE, help="The same, for CRITICAL.")
def check_aof(target: Target, warning: Range | None, critical: Range | None) -> int:
    """Check the append-only file of a node: its last write, its last rewrite, and the one that is under way.

    A write that failed is CRITICAL: the node takes no jobs until one succeeds.  A rewrite that failed is WARNING.
    A node that keeps no append-only file is UNKNOWN; `disqued check node` tells of failed writes of any store.

    \b
    Examples:
      disqued check aof
      disqued check aof -w 600 -c 3600
    """
    report = CheckResult("AOF")
    with target.node() as node:
        info = read_info(node)
    # `aof_enabled` is that of Disque: it says that there is a store, of any kind.
    if info["persistence"] != "aof":
        kept = f"{target} keeps no append-only file: `persistence` is {info['persistence']}"
        also = "" if info["persistence"] == "none" else "; `disqued check node` looks at the writes of every store"
        report.add(CheckState.UNKNOWN, kept + also)
        return _print(report)
    if info["aof_last_write_status"] != "ok":
        report.add(CheckState.CRITICAL, "the last write failed, and the node takes no jobs")
    if info["aof_last_bgrewrite_status"] != "ok":
        report.add(CheckState.WARNING, "the last rewrite failed")
    spent = max(0, int(info["aof_current_rewrite_time_sec"]))
    report.figure(
        "rewrite", spent, "s", warning=warning, critical=critical, problem=f"a rewrite has been under way for {spent} s"
    )
    report.figure("last_rewrite", max(0, int(info["aof_last_rewrite_time_sec"])), "s")
    report.figure("size", int(info["aof_current_size"]), "B")
    report.figure("buffer", int(info["aof_buffer_length"]), "B")
    report.figure("late_fsyncs", int(info["aof_delayed_fsync"]), "c")
    report.facts = f"the last write and the last rewrite are in order, {info['aof_current_size']} bytes"
    return _print(report)


# What nodes are asked.


def read_lines(text: bytes) -> dict[str, str]:
    """Names and values of lines `name:value`."""
    lines = text.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


class _Facts(dict[str, str]):
    def __missing__(self, name: str) -> str:
        raise Failed(f"its INFO has no {name}: the address is that of something else than a node of disqued")


def read_info(node: NodeConnection) -> Mapping[str, str]:
    """Return INFO by field name.  Raises what `NodeConnection.call` does, and Failed for a name that is missing."""
    return _Facts(read_lines(node.call("INFO")))


def read_flags(node: NodeConnection) -> dict[str, list[str]]:
    """The flags of each node of the cluster, by its address.  Raises what `NodeConnection.call` does."""
    rows = [line.split() for line in node.call("CLUSTER", "NODES").decode(errors="replace").splitlines()]
    return {row[1] if "myself" not in row[2] else f"{row[1]} (itself)": row[2].split(",") for row in rows}


def oldest_age(node: NodeConnection, queue: str) -> float:
    """Return the age of the oldest waiting job in seconds; 0 = none waits.  Raises what `NodeConnection.call` does."""
    oldest: Sequence[Any] = node.call("QPEEK", queue, 1)
    if not oldest:
        return 0.0
    try:
        shown = node.call("SHOW", oldest[0][1])
    except ServerError:  # it is over by now
        return 0.0
    if not shown:
        return 0.0
    facts = dict(zip(shown[::2], shown[1::2], strict=True))
    seconds, _ = node.call("TIME")
    return max(0.0, int(seconds) - int(facts[b"ctime"]) / 1e9)
