"""Schedules, as `schedules` returns them."""

import attrs

from .errors import BadReply
from .replies import read_list


@attrs.frozen
class Schedule:
    """A schedule of the cluster; instants are unix seconds, 0 for none."""

    name: bytes
    #: The cron line, `EVERY seconds` or `AT unix-seconds`.
    when: bytes
    queue: bytes
    #: active, paused or done.
    state: str
    #: When it comes next.
    next_at: int
    #: When it came last.
    last_at: int
    #: What became of the job of the last instant, such as acked, dead or skipped; empty if there was none.
    became: str
    #: Why a job is refused now; empty if none is.
    error: str


def read_schedules(reply: object, node: bytes) -> list[Schedule]:
    """Read `[name, when, queue, state, next, last, became, error]` of each schedule.  Raises BadReply."""
    found = []
    for row in map(read_list, read_list(reply)):
        match row:
            case [
                bytes() as name, bytes() as when, bytes() as queue, bytes() as state, int() as next_at,
                int() as last_at, bytes() as became, bytes() as error,
            ]:  # fmt: skip
                told = (word.decode("utf-8", "backslashreplace") for word in (became, error))
                found.append(Schedule(name, when, queue, state.decode(), next_at, last_at, *told))
            case _:
                raise BadReply(f"{row!r} is no schedule")
    return found


def read_instants(reply: object, node: bytes) -> list[int]:
    """Read unix seconds.  Raises BadReply."""
    found = []
    for instant in read_list(reply):
        if not isinstance(instant, int):
            raise BadReply(f"{instant!r} is no instant")
        found.append(instant)
    return found
