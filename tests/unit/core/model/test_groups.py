"""The events of a log and what a group made of them, as data: what is next, what is counted, what merges."""

import pytest

from disqued.core.model import groups
from disqued.core.model.groups import (
    EARLY_COST,
    GROUP_COST,
    LATE_COST,
    LOG_COST,
    MARK_COST,
    UNIT_COST,
    Behind,
    Entry,
    EntryForm,
    Group,
    GroupWaiter,
    Stream,
    forget_early,
    note_early,
    raise_floor,
    read_scope,
)
from disqued.core.model.job import ACTIVE, KIND_LOG, QUEUED, RETRY_NEVER_MS, JobOptions
from disqued.core.model.memory import Memory
from tests.core_fixtures import check_log

OWN, OTHER = b"aaaaaaaa", b"bbbbbbbb"
NOW = 1_000


class Row(EntryForm):
    """A form of the test's own."""

    def row(self, unit: object) -> None:
        """Nothing."""

    def answer(self, units: object) -> None:
        """Nothing."""


def make_event(number: int, origin: bytes = OWN, *, ttl_ms: int = 60_000) -> Entry:
    """An event whose stamp is its number."""
    options = JobOptions(ttl_ms=ttl_ms, retry_ms=RETRY_NEVER_MS, delay_ms=0, replicate=1, kind=KIND_LOG)
    options.stamp(NOW)
    event = Entry(b"DI%b%032x000aSQ" % (origin, number), b"q", b"body", number, options)
    event.state = QUEUED
    return event


@pytest.fixture
def log() -> Stream:
    return Stream(b"q", Memory(1 << 40, evicts=True), OWN)


@pytest.fixture
def group(log: Stream) -> Group:
    return log.group(b"g")


def add(log: Stream, number: int, origin: bytes = OWN, *, ttl_ms: int = 60_000, elsewhere: bool = False) -> Entry:
    event = make_event(number, origin, ttl_ms=ttl_ms)
    event.elsewhere = elsewhere
    log.see(event)
    log.add(event)
    return event


def take(group: Group, *, strict: bool = False) -> Entry | None:
    """Let somebody have the next event; returns it."""
    event = group.next(NOW, strict=strict)
    if event is not None:
        unit = group.take(event)
        unit.requeue_at, unit.awake_at = NOW + 10, NOW + 11
    return event


def exceptions(group: Group) -> list[object]:
    return [*group.passed.own, *group.passed.foreign]


# Scopes and floors.


@pytest.mark.parametrize(
    ("scope", "read"),
    [
        (b"0:g", (b"g", 0)), (b"12:a:b", (b"a:b", 12)), (b"7:", (b"", 7)), (b"9" * 18 + b":g", (b"g", 10**18 - 1)),
        (b"9" * 19 + b":g", None), (b"", None), (b"5", None), (b":g", None), (b"x:g", None), (b"-1:g", None),
        (b"01:g", None), (b"00:g", None), (b"10:g", (b"g", 10)),
    ],
)  # fmt: skip
def test_a_scope_is_the_epoch_and_the_name_of_a_group_in_one_way_of_writing(
    scope: bytes, read: tuple[bytes, int] | None
) -> None:
    assert read_scope(scope) == read
    if read is not None:
        assert groups.scope_of(*read) == scope


def test_floors_merge_by_maximum_and_say_whether_that_changed_them() -> None:
    floor: dict[bytes, int] = {}
    assert not raise_floor(floor, {})
    assert raise_floor(floor, {OWN: 0})
    assert raise_floor(floor, {OWN: 5, OTHER: 3})
    assert not raise_floor(floor, {OWN: 5, OTHER: 2})
    assert not raise_floor(floor, {OWN: 4})
    assert floor == {OWN: 5, OTHER: 3}


# What there is to say of a group, or of a log.


@pytest.mark.parametrize("what", ["nothing", "done", "units", "waiters", "floor", "epoch"])
def test_a_group_is_forgotten_when_there_is_nothing_of_it_to_remember(log: Stream, group: Group, what: str) -> None:
    used = log.memory.used
    if what == "done":
        group.finish(add(log, 1))
    elif what == "units":
        group.take(add(log, 1))
    elif what == "waiters":
        GroupWaiter("anna", [], [group], Row(1)).enter()
    elif what == "floor":
        group.floor[OTHER] = 1
    elif what == "epoch":
        group.merge(1, {})
    assert group.is_blank == (what == "nothing")
    assert group.is_known == (what not in ("nothing", "epoch"))
    for _ in range(2):
        log.let_go(group)
    assert (b"g" in log.groups) == (what != "nothing")
    if what == "nothing":
        assert used - log.memory.used == GROUP_COST + 2


@pytest.mark.parametrize("what", ["nothing", "events", "delayed", "groups", "horizon"])
def test_a_log_is_idle_when_nobody_would_notice_that_it_is_gone(log: Stream, what: str) -> None:
    if what == "events":
        add(log, 1)
    elif what == "delayed":
        log.expect(make_event(1))
    elif what == "groups":
        log.group(b"g")
    elif what == "horizon":
        log.horizon[OTHER] = 1
    assert log.is_idle == (what == "nothing")
    assert log.has_content == (what in ("events", "delayed"))


def test_a_log_knows_the_last_stamp_of_each_maker_and_the_longest_life(log: Stream) -> None:
    for number, origin, ttl_ms in ((5, OWN, 10), (3, OWN, 90), (7, OTHER, 50), (0, b"cccccccc", 1)):
        log.see(make_event(number, origin, ttl_ms=ttl_ms))
    assert log.seen == {OWN: 5, OTHER: 7, b"cccccccc": 0}
    assert log.longest_ms == 90


def test_what_a_log_takes_is_counted_and_given_back(log: Stream) -> None:
    assert log.memory.used == LOG_COST
    group = log.group(b"g")
    events = [add(log, number) for number in range(3)]
    group.take(events[0])
    group.finish(events[1])
    group.take(events[2])
    group.finish(events[2])
    assert log.memory.used == log.cost == LOG_COST + GROUP_COST + 2 + UNIT_COST + MARK_COST + 3
    ended = [unit for event in events for unit in log.remove(event)]
    assert [unit.entry for unit in ended] == events[:1]
    assert log.memory.used == LOG_COST
    assert not log.groups


def test_the_successor_of_a_log_knows_what_merges_and_who_waits(log: Stream) -> None:
    for name in (b"waits", b"began", b"forgotten", b"floor", b"used"):
        log.group(name)
    beside = Stream(b"r", log.memory, OWN).group(b"waits")
    waiter = GroupWaiter("anna", [], [log.groups[b"waits"], beside], Row(1))
    waiter.enter()
    log.groups[b"began"].merge(2, {OTHER: 3})
    log.groups[b"began"].since, log.groups[b"began"].until = 40, 50
    log.groups[b"forgotten"].merge(1, {})
    log.groups[b"floor"].merge(0, {OTHER: 4})
    log.groups[b"used"].finish(add(log, 9, ttl_ms=77))
    log.horizon, log.since, log.until = {OWN: 2}, 20, 30
    after = log.successor()
    assert set(after.groups) == {b"waits", b"began", b"forgotten", b"floor"}
    began = after.groups[b"began"]
    assert (began.epoch, began.scope, began.floor, began.since, began.until) == (2, b"2:began", {OTHER: 3}, 40, 50)
    assert after.groups[b"floor"].floor == {OTHER: 4}
    assert waiter.groups == [after.groups[b"waits"], beside]
    assert (after.horizon, after.since, after.until, after.seen, after.longest_ms) == ({OWN: 2}, 20, 30, {OWN: 9}, 77)
    assert not log.groups[b"waits"].waiters


# What is next.


def test_events_that_come_in_order_are_no_exceptions_and_late_ones_are(log: Stream, group: Group) -> None:
    first, third = add(log, 1), add(log, 3)
    assert group.next(NOW) is first
    assert not exceptions(group)
    assert [take(group), take(group)] == [first, third]
    assert group.position == (3, third.id)
    assert not exceptions(group)
    late, foreign = add(log, 2), add(log, 0, OTHER)
    assert ([*group.passed.own], [*group.passed.foreign]) == ([late], [foreign])
    check_log(log)
    assert [take(group), take(group), take(group)] == [foreign, late, None]
    assert not exceptions(group)
    check_log(log)


def test_an_event_that_another_node_hands_out_is_passed_over_and_found_when_it_comes_here(
    log: Stream, group: Group
) -> None:
    first, second = add(log, 1, elsewhere=True), add(log, 2)
    assert take(group) is second
    assert not exceptions(group)
    # Nor is one that comes late.
    log.remove(add(log, 0, elsewhere=True))
    add(log, 0, OTHER, elsewhere=True)
    assert not exceptions(group)
    for _ in range(2):
        first.elsewhere = False
        group.came_here(first)
        group.came_here(first)
        assert exceptions(group) == [first]
        check_log(log)
        first.elsewhere = True
        group.went_away(first)
        assert not exceptions(group)
        check_log(log)
    assert take(group) is None


def test_a_late_one_that_another_node_hands_out_from_now_on_is_no_exception(log: Stream, group: Group) -> None:
    add(log, 2)
    assert take(group) is not None
    late = add(log, 1)
    assert exceptions(group) == [late]
    late.elsewhere = True
    log.went_away(late)
    assert not exceptions(group)
    assert take(group) is None
    check_log(log)


def test_an_exception_of_an_epoch_that_is_over_goes_away_as_what_it_is_in_the_new_one(
    log: Stream, group: Group
) -> None:
    add(log, 2)
    assert take(group) is not None
    late = add(log, 1)
    group.merge(1, {})
    group.give_back(group.take(late))
    late.elsewhere = True
    log.went_away(late)
    assert not exceptions(group)
    check_log(log)


def test_one_behind_the_position_comes_here_as_any_other(log: Stream, group: Group) -> None:
    event = add(log, 1, elsewhere=True)
    event.elsewhere = False
    group.came_here(event)
    assert not exceptions(group)
    assert take(group) is event


@pytest.mark.parametrize("is_back", [False, True])
def test_what_somebody_has_or_had_goes_away_and_comes_here_with_its_event(
    log: Stream, group: Group, is_back: bool
) -> None:
    event = add(log, 1)
    unit = group.take(event)
    unit.requeue_at, unit.awake_at = NOW + 10, NOW + 11
    if is_back:
        unit.requeue_at = unit.awake_at = 0
        group.give_back(unit)
    for elsewhere in (True, False):
        event.elsewhere = elsewhere
        (group.went_away if elsewhere else group.came_here)(event)
        assert exceptions(group) == [unit] * (is_back and not elsewhere)
        check_log(log)
    event.elsewhere = True
    group.went_away(event)
    assert log.remove(event) == [unit]
    assert (group.leased, group.redo) == (0, 0)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("why", ["over", "flushed"])
def test_events_whose_time_is_over_or_that_were_flushed_are_passed_over(
    log: Stream, group: Group, why: str, is_late: bool
) -> None:
    last = add(log, 9)
    if is_late:
        group.take(last)
    # The one ends in this very millisecond.
    bad = add(log, 1, OTHER, ttl_ms=0) if why == "over" else add(log, 1, OTHER)
    good = add(log, 2)
    if why == "flushed":
        log.horizon = {OTHER: 1}
    assert group.next(NOW) is good
    assert bad.expires_at >= NOW
    if is_late:
        assert exceptions(group) == [good, bad]


def test_strict_passes_over_what_others_made_which_is_had_later_in_its_place(log: Stream, group: Group) -> None:
    foreign, own, last = add(log, 1, OTHER), add(log, 2), add(log, 3, OTHER)
    assert take(group, strict=True) is own
    assert [*group.passed.foreign] == [foreign]
    check_log(log)
    assert take(group, strict=True) is None
    assert [take(group), take(group), take(group)] == [foreign, last, None]


def test_who_is_not_strict_leaves_nothing_among_the_exceptions(log: Stream, group: Group) -> None:
    foreign = add(log, 1, OTHER)
    own = add(log, 2)
    assert group.next(NOW) is foreign
    assert not exceptions(group)
    group.take(foreign)
    assert group.position == (1, foreign.id)
    # One that is not the next is taken without going on.
    group.take(add(log, 4))
    assert group.position == (1, foreign.id)
    assert group.next(NOW) is own


@pytest.mark.parametrize("is_late", [False, True])
def test_so_many_are_passed_over_at_once_and_then_others_have_their_turn(
    log: Stream, group: Group, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    monkeypatch.setattr(groups, "SKIPPED_AT_ONCE", 4)
    end = add(log, 90)
    if is_late:
        group.take(end)
    for number in range(1, 8):
        add(log, number, ttl_ms=0)
    with pytest.raises(Behind):
        group.next(NOW)
    if is_late:
        return
    # It goes on where it was: five were passed over, two are left.
    assert group.position[0] == 5
    assert group.next(NOW) is end


def test_an_event_that_is_gone_is_no_exception_any_more(log: Stream, group: Group) -> None:
    take_all = [add(log, 5)]
    assert take(group) is take_all[0]
    late = add(log, 1)
    assert log.remove(late) == []
    assert not exceptions(group)
    assert take(group) is None
    check_log(log)


# Units.


def test_a_unit_that_is_had_again_is_in_its_place_by_age_again(log: Stream, group: Group) -> None:
    first, second = add(log, 1), add(log, 2)
    unit = group.take(second)
    group.take(first)
    group.give_back(unit, -99)
    assert group.next(NOW) is second
    assert group.take(second) is unit
    assert (unit.order_key, unit.state, group.leased, group.redo) == (2, ACTIVE, 2, 0)


def test_what_nobody_ever_had_is_next_again_and_an_exception_only_behind_the_position(
    log: Stream, group: Group
) -> None:
    first, second = add(log, 1), add(log, 2)
    ahead = group.take(second)
    group.never_had(ahead)
    assert not exceptions(group)
    unit = group.take(first)
    group.never_had(unit)
    assert exceptions(group) == [first]
    assert (group.leased, group.available) == (0, 2)


def test_a_group_is_done_with_an_event_once_and_its_unit_ends(log: Stream, group: Group) -> None:
    event = add(log, 1)
    unit = group.take(event)
    assert group.finish(event) is unit
    assert group.finish(event) is None
    assert (group.done, group.leased) == (1, 0)
    assert event.done == [b"0:g"]
    assert log.remove(event) == []
    assert group.done == 0


# Beginnings.


def test_a_group_that_begins_behind_some_events_is_done_with_them_and_its_units_of_them_end(
    log: Stream, group: Group
) -> None:
    events = [add(log, number) for number in range(1, 5)]
    foreign = add(log, 6, OTHER)
    group.finish(events[0])
    units = [group.take(event) for event in (events[1], events[3])]
    for unit in units:
        unit.requeue_at, unit.awake_at = NOW + 10, NOW + 11
    assert group.merge(0, {OWN: 3}) == [units[0]]
    assert (group.done, group.leased, group.available) == (3, 1, 1)
    check_log(log)
    assert group.merge(0, {OWN: 3}) is None
    assert group.merge(0, {OWN: 2}) is None
    assert (group.done, group.leased) == (3, 1)
    assert group.next(NOW) is foreign


def test_only_a_later_epoch_begins_anew(log: Stream, group: Group) -> None:
    events = [add(log, number) for number in range(1, 4)]
    assert group.merge(2, {OWN: 1}) == []
    assert (group.scope, group.done) == (b"2:g", 1)
    unit = group.take(events[1])
    unit.requeue_at, unit.awake_at = NOW + 10, NOW + 11
    assert group.merge(1, {OWN: 9}) is None
    assert (group.scope, group.done, group.leased) == (b"2:g", 1, 1)
    assert group.merge(3, {}) == [unit]
    assert (group.scope, group.done, group.leased, group.available) == (b"3:g", 0, 0, 3)
    assert group.next(NOW) is events[0]
    check_log(log)


# What is over.


@pytest.mark.parametrize(("now", "is_over"), [(89, False), (90, True), (91, True)])
@pytest.mark.parametrize("said_by", ["others", "events"])
def test_up_to_where_a_log_was_flushed_is_known_as_long_as_it_may_mean_something(
    log: Stream, now: int, is_over: bool, said_by: str
) -> None:
    assert not log.forget_horizon(now)
    log.horizon = {OWN: 1}
    if said_by == "others":
        log.until = 90
    else:
        log.since, log.longest_ms = 20, 70
    assert log.forget_horizon(now) == is_over
    assert log.horizon == ({} if is_over else {OWN: 1})
    assert not log.forget_horizon(now)


@pytest.mark.parametrize("still", ["nothing", "time", "done", "units"])
def test_where_a_group_began_matters_while_events_of_that_time_live_or_it_is_used(
    log: Stream, group: Group, still: str
) -> None:
    group.merge(1, {OWN: 1})
    group.until = 91 if still == "time" else 90
    if still == "done":
        group.finish(add(log, 5, ttl_ms=0))
    elif still == "units":
        group.take(add(log, 5, ttl_ms=0))
    assert log.needs(group, 90) == (still != "nothing")


# Facts.


def test_a_fact_takes_nothing_beside_the_mark_of_its_scope_while_groups_are_few(log: Stream) -> None:
    events = [add(log, number) for number in range(6)]
    for event in events:
        assert log.note_done(event, b"0:g")
        assert not log.note_done(event, b"0:g")
        assert log.note_done(event, b"0:h")
    assert events[0].done == [b"0:g", b"0:h"]
    assert events[0].is_done_for(b"0:h")
    assert not events[0].is_done_for(b"1:h")
    assert log.memory.used == LOG_COST + 2 * (MARK_COST + 3)
    for event in events:
        log.remove(event)
    assert log.memory.used == LOG_COST


@pytest.mark.parametrize("turn", [1, -1])
def test_very_many_groups_that_are_done_with_an_event_take_a_bit_each(log: Stream, turn: int) -> None:
    event = add(log, 1)
    scopes = [b"0:%04d" % number for number in range(4_000)]
    for scope in scopes:
        assert log.note_done(event, scope)
    bits = log.memory.used - LOG_COST - 4_000 * (MARK_COST + 6)
    assert 4_000 // 8 <= bits <= 4_000 // 8 + 64
    assert event.done == scopes
    log.remove(event)
    assert (log.memory.used, log.marks) == (LOG_COST, {})


def test_the_number_of_a_scope_that_is_done_with_nothing_any_more_is_given_to_another_one(log: Stream) -> None:
    first, second = add(log, 1), add(log, 2)
    log.note_done(first, b"0:a")
    log.note_done(second, b"0:b")
    log.remove(first)
    third = add(log, 3)
    log.note_done(third, b"0:c")
    log.note_done(third, b"0:d")
    assert [log.marks[scope].number for scope in (b"0:b", b"0:c", b"0:d")] == [1, 0, 2]
    assert (second.done, third.done) == ([b"0:b"], [b"0:c", b"0:d"])


def test_an_event_comes_and_goes_with_the_facts_that_are_known_of_it(log: Stream) -> None:
    event = make_event(1)
    note_early(log.memory, event, b"0:g")
    for _ in range(2):
        note_early(log.memory, event, b"0:h")
    assert event.done == [b"0:g", b"0:h"]
    assert log.memory.used == LOG_COST + 2 * (EARLY_COST + 3)
    group = log.group(b"g")
    log.add(event)
    assert (group.done, event.done) == (1, [b"0:g", b"0:h"])
    assert log.memory.used == LOG_COST + GROUP_COST + 2 + 2 * (MARK_COST + 3)
    assert event.stream is log
    log.remove(event)
    assert event.stream is None
    assert log.memory.used == LOG_COST


def test_facts_of_an_event_that_ends_before_it_is_in_its_log_are_let_go_of(log: Stream) -> None:
    event = make_event(1)
    note_early(log.memory, event, b"0:g")
    forget_early(log.memory, event)
    assert (log.memory.used, event.has_facts) == (LOG_COST, False)


def test_an_event_is_done_once_though_it_is_a_fact_and_the_group_began_behind_it(log: Stream, group: Group) -> None:
    events = [add(log, number) for number in range(1, 6)]
    group.finish(events[0])
    group.finish(events[4])
    assert group.merge(0, {OWN: 3}) == []
    check_log(log)
    assert log.note_done(events[1], b"0:g")
    assert not group.finish(events[2])
    assert (group.done, group.available, group.overlap) == (4, 1, 3)
    check_log(log)
    for number in (0, 1, 3, 2):
        log.remove(events[number])
        check_log(log)
    assert (group.done, group.overlap) == (1, 0)


def test_facts_of_an_epoch_that_is_heard_of_before_the_group_is_in_it_count_once_it_is(
    log: Stream, group: Group
) -> None:
    first, second = add(log, 1), add(log, 2)
    for event in (first, second):
        log.note_done(event, b"2:g")
    assert group.done == 0
    group.merge(2, {OWN: 1})
    assert (group.done, group.overlap) == (2, 1)
    check_log(log)


def test_what_a_group_may_have_that_nobody_had_is_counted_while_it_may(log: Stream, group: Group) -> None:
    foreign = [add(log, number, OTHER) for number in range(1, 4)]
    own = add(log, 9)
    assert take(group, strict=True) is own
    used = log.memory.used
    assert used == LOG_COST + GROUP_COST + 2 + UNIT_COST + 3 * LATE_COST
    log.remove(foreign[0])
    assert group.next(NOW) is foreign[1]
    group.take(foreign[1])
    assert log.memory.used == used - 2 * LATE_COST + UNIT_COST
    group.merge(1, {})
    assert (log.memory.used, foreign[2].late) == (LOG_COST + GROUP_COST + 2, {group.passed: None})
    assert not group.passed.forget_left(10)
    assert foreign[2].late == {}


def test_an_event_that_goes_ends_the_groups_that_had_something_of_it_and_looks_at_no_other(log: Stream) -> None:
    groups_ = [log.group(b"%d" % number) for number in range(5)]
    event = add(log, 1)
    unit = groups_[1].take(event)
    groups_[2].finish(event)
    groups_[3].take(event)
    groups_[3].merge(1, {})
    assert log.remove(event) == [unit]
    assert list(log.groups) == [b"0", b"3", b"4"]
