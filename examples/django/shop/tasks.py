"""The tasks of the shop."""

try:
    from django.tasks import task
except ModuleNotFoundError:  # before Django 6.0
    from django_tasks import task


@task(queue_name="mail")
def send_receipt(customer: str, total: int) -> str:
    """Send a receipt, as far as an example can; returns the text."""
    if total < 0:
        raise ValueError(f"an order of {total}")
    return f"Dear {customer}, you have paid {total}."
