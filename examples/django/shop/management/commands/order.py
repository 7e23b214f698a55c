"""`manage.py order CUSTOMER TOTAL`: orders something, and waits for the receipt."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from shop.tasks import send_receipt


class Command(BaseCommand):
    """Adds one task, and prints what became of it."""

    help = "Order something, and print the receipt."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("customer")
        parser.add_argument("total", type=int)

    def handle(self, *args: Any, **options: Any) -> None:
        """Wait for the end of the task."""
        result = send_receipt.enqueue(options["customer"], options["total"])
        while not result.is_finished:
            time.sleep(0.1)
            result.refresh()
        self.stdout.write(f"{result.status}: {result.errors[0].traceback if result.errors else result.return_value}")
