"""What a store's Deferred has failed with: a reason that people read, or a bug of ours, which the log has."""

from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.persistence.interface import StoreFailed

log = Logger("disqued.net.process.driver.Driver")  # which carries out what has failed


def reason_of(failure: Failure) -> StoreFailed:
    """Return why a store could not do it; a bug is reported."""
    error = failure.value
    if isinstance(error, StoreFailed):
        return error
    report(failure)
    return StoreFailed(f"internal error: {error}")


def report(failure: Failure) -> None:
    """Report a bug."""
    log.failure("Internal error in the store", failure=failure)
