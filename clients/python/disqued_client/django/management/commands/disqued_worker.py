"""`manage.py disqued_worker` runs tasks until SIGTERM or SIGINT."""

import signal
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...backend import DisquedBackend
from ...task_interface import task_backends


class Command(BaseCommand):
    """Runs the tasks of one backend, in threads."""

    help = "Run tasks of a disqued backend.  SIGTERM and SIGINT stop it, once the tasks at work have ended."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--backend", default="default", help="name of the backend in TASKS (default: %(default)s)")
        parser.add_argument("--queue", action="append", help="a queue; several may be named (default: all of QUEUES)")
        parser.add_argument("--threads", type=int, default=1, help="tasks at a time (default: %(default)s)")
        parser.add_argument("--name", default="", help="name of the worker (default: host and process)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Raises CommandError for wrong options."""
        try:
            backend = task_backends[options["backend"]]
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        if not isinstance(backend, DisquedBackend):
            raise CommandError(f"the backend {options['backend']} is a {type(backend).__name__}, not a DisquedBackend")
        queues = options["queue"] or sorted(backend.queues)
        if not queues:
            raise CommandError("QUEUES of this backend is empty: name the queues with --queue")
        if unknown := [name for name in queues if backend.queues and name not in backend.queues]:
            raise CommandError(f"unknown queue {unknown[0]}; allowed are {', '.join(sorted(backend.queues))}")
        try:
            worker = backend.worker(queues, threads=options["threads"], name=options["name"])
        except ValueError as error:
            raise CommandError(str(error)) from None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop())
        self.stdout.write(f"disqued_worker runs tasks of {', '.join(queues)}; SIGTERM stops it")
        worker.run()
        self.stdout.write(f"disqued_worker has stopped; {worker.figures.done} tasks done")
