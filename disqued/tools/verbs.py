"""The verbs of `disqued`: what each is for, and the module that is imported when it is asked for.

The module has a `command`, which is a `click.Command`, or a `click.Group` where the verb has verbs of its own.
"""

from typing import Final

#: Set by the shell that completes a command line.
COMPLETION_VARIABLE: Final = "_DISQUED_COMPLETE"

#: Name: what it does, in one line, and its module.  In the order in which one would use them.
VERBS: Final = {
    "cli": ("talk to a node: one command, or a prompt", "disqued.tools.cli.command"),
    "top": ("the nodes and queues of a cluster, as they are now", "disqued.tools.top"),
    "bench": ("put a load on a node, and measure how long its requests take", "disqued.tools.bench"),
    "check": ("look at a node for a monitoring system", "disqued.tools.check"),
    "cluster": ("make a cluster of nodes, look at it, drain nodes", "disqued.tools.cluster"),
    "restart": ("restart a node so that nothing is lost, and wait until it serves", "disqued.tools.restart"),
    "move": ("move the jobs of a queue to another queue or cluster", "disqued.tools.move"),
    "queues": ("show the queues of a cluster", "disqued.tools.queue_verbs.queue_list"),
    "consumers": ("show who waits for jobs of a queue, and who has some", "disqued.tools.queue_verbs.consumers"),
    "peek": ("show jobs that wait in a queue", "disqued.tools.queue_verbs.peek"),
    "dead": ("show the dead jobs of a queue, and how they failed", "disqued.tools.queue_verbs.dead"),
    "redrive": ("queue the dead jobs of a queue again", "disqued.tools.queue_verbs.redrive"),
    "requeue": ("queue jobs at once", "disqued.tools.queue_verbs.requeue"),
    "cancel": ("cancel jobs in the whole cluster", "disqued.tools.queue_verbs.cancel"),
    "pause": ("pause a queue in the whole cluster", "disqued.tools.queue_verbs.pause"),
    "resume": ("end the pause of a queue", "disqued.tools.queue_verbs.resume"),
    "throttle": ("hand nothing out of a queue for a while", "disqued.tools.queue_verbs.throttle"),
    "policy": ("show or set the policy of a queue", "disqued.tools.queue_verbs.policy"),
    "slots": ("show which jobs of a queue with limits are with consumers", "disqued.tools.queue_verbs.slots"),
    "schedule": ("show the schedules of a cluster, or change one", "disqued.tools.schedule"),
    "purge": ("end the jobs of a queue in the whole cluster", "disqued.tools.queue_verbs.purge"),
    "import": ("put the jobs of a journal of Disque into a store", "disqued.tools.import_aof"),
    "export": ("write what a store holds as JSON lines or Parquet", "disqued.tools.export"),
    "ship-events": ("copy published files of the event log to another folder", "disqued.tools.ship_events"),
    "check-aof": ("examine an append-only file, and repair it", "disqued.tools.check_aof"),
    "install-units": ("put the units for systemd in place", "disqued.tools.install_units"),
    "help": ("show the help of a verb", "disqued.tools.helping"),
    "completion": ("make a shell complete the words of disqued", "disqued.tools.completion"),
}

#: Verbs of verbs, each behind the verb that has it.
VERBS_OF: Final = (
    ("cluster", "create"), ("cluster", "add"), ("cluster", "drain"), ("cluster", "status"),
    ("check", "node"), ("check", "cluster"), ("check", "queue"), ("check", "aof"),
)  # fmt: skip
