"""The pure parts of `disqued bench`: mixes and the requests that are made of them, latencies, and reports."""

import csv
import io
import select
from bisect import bisect_left, bisect_right
from collections import Counter
from random import Random

import hiredis
import pytest

from disqued.tools import reference
from disqued.tools.bench import command, load, report
from disqued.tools.bench.crew import LoadResult
from disqued.tools.bench.latencies import GATHERED, Latencies
from disqued.tools.bench.load import CommandTally
from disqued.tools.bench.mix import KNOWN, BadMix, Mix, Requests, encode, make_mix, of_words, read_mix, template

# Latencies.


@pytest.mark.parametrize("count", [1, 2, 7, 100, 1_000, GATHERED + 3])
def test_a_percentile_is_a_request_that_there_was(count: int) -> None:
    rng = Random(count)
    taken = [rng.randrange(1, 5_000) for _ in range(count)]
    latencies = Latencies()
    for us in taken:
        latencies.add(us)
    taken.sort()
    assert len(latencies) == count
    for percent in (1.0, 50.0, 90.0, 99.0, 99.9, 100.0):
        (found,) = latencies.percentiles(percent)
        # As many per cent of all took no more; and no shorter one has that.
        us = round(found * 1_000)
        assert bisect_right(taken, us) * 1_000 >= percent * 10 * count
        assert bisect_left(taken, us) * 1_000 < percent * 10 * count
    assert latencies.mean_ms == pytest.approx(sum(taken) / count / 1_000)


def test_several_percentiles_are_found_at_once() -> None:
    latencies = Latencies().merge(Counter({1_000: 98, 2_000: 1, 50_000: 1}))
    assert latencies.percentiles(50, 98, 99, 99.9, 100) == [1, 1, 2, 50, 50]


def test_what_processes_have_counted_adds_up() -> None:
    one, two = Latencies(), Latencies()
    for us in (1, 2, 3):
        one.add(us)
        two.add(us + 1)
    assert one.merge(two.counts).counts == Counter({1: 1, 2: 2, 3: 2, 4: 1})


def test_no_request_took_no_time() -> None:
    assert Latencies().percentiles(50, 99) == [0.0, 0.0]
    assert Latencies().mean_ms == 0.0


# Mixes.


def order(text: str) -> list[str]:
    mix = read_mix(text, {})
    return [mix.templates[turn].name for turn in mix.round]


def test_a_mix_is_spread_as_evenly_as_it_goes() -> None:
    assert order("addjob=2,getjob=1") == ["addjob", "getjob", "addjob"]
    dealt = order("addjob=5,getjob=4,ackjob=1")
    assert Counter(dealt) == {"addjob": 5, "getjob": 4, "ackjob": 1}
    for start in range(len(dealt)):
        assert len(set((dealt + dealt)[start : start + 3])) >= 2  # no long runs of one
    assert order("addjob=500,getjob=500") == ["addjob", "getjob"]
    assert order("ping") == ["ping"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names '', which is no command"),
        ("addjob,addjob", "names addjob twice"),
        ("addjob=0", "gives addjob the weight '0'; whole numbers from 1 are allowed"),
        ("addjob=-1", "the weight '-1'"),
        ("addjob=1.5", "the weight '1.5'"),
        ("flyjob=1", "names 'flyjob', which is no command; those are addjob, getjob"),
        ("ping=3,ackjob=1", "there has to be an ADDJOB or a GETJOB in it"),
        ("addjob=10007,getjob=3", "add up to 10010; 10000 are allowed"),
    ],
)
def test_a_mix_that_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadMix) as refusal:
        read_mix(text, {})
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "has no words"), ("'' x", "has no words"), ("ADDJOB 'q", "cannot be read: no closing quotation")],
)
def test_a_template_that_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadMix, match=said):
        template("mine", text)


def test_a_load_of_nothing_but_ids_is_refused() -> None:
    with pytest.raises(BadMix, match="none can come first"):
        make_mix([template("odd", "ADDJOB __id__ __body__ 0")], [1])


def test_every_name_that_is_known_is_a_template_and_in_the_help() -> None:
    for name, text in KNOWN.items():
        assert template(name, text).verb.decode().lower() == name
    help_ = " ".join((command.help or "").split())
    assert f"{', '.join(list(KNOWN)[:-1])} and {list(KNOWN)[-1]}." in help_


def test_the_reference_shows_placeholders_and_no_bold_words() -> None:
    page = "\n".join(reference.markdown())
    assert r"Length of \_\_body\_\_." in page
    assert r"In commands \_\_queue\_\_ is the queue" in page


def test_the_queues_that_are_filled_are_known_before() -> None:
    queues = [b"bench-0", b"bench-1"]
    own = {"mine": template("mine", "addjob own __body__ 0"), "each": template("each", "ADDJOB q__n__ __body__ 0")}
    assert read_mix("addjob,mine,getjob", own).filled(queues) == [b"bench-0", b"bench-1", b"own"]
    assert read_mix("getjob", own).filled(queues) == []
    with pytest.raises(BadMix, match="each has a queue of its own for each request: --keep allows that"):
        read_mix("each", own).filled(queues)


# Requests.


def words(requests: Requests) -> list[bytes]:
    """The next request, read as a node reads it."""
    _, data = requests.next()
    reader = hiredis.Reader()
    reader.feed(data)
    read = reader.gets()
    assert isinstance(read, list)
    assert reader.gets() is False
    return read


def one(text: str) -> Mix:
    return make_mix([template("one", text)], [1])


def test_what_stands_in_a_template_is_filled_in() -> None:
    requests = Requests(one("ADDJOB __queue__ '__body__ of __n__' 0 KEY k__n____n__"), [b"a", b"b"], b"xx", 1, 3)
    assert words(requests) == [b"ADDJOB", b"a", b"xx of 1", b"0", b"KEY", b"k11"]
    assert words(requests) == [b"ADDJOB", b"b", b"xx of 4", b"0", b"KEY", b"k44"]


def test_a_command_for_each_queue_is_the_same_whether_it_is_kept_or_made_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Requests(one("ADDJOB __queue__ __body__ 0"), [b"a", b"bb"], b"xx")
    monkeypatch.setattr("disqued.tools.bench.mix.READY_MAX", 3)
    made = Requests(one("ADDJOB __queue__ __body__ 0"), [b"a", b"bb"], b"xx")
    assert [words(kept) for _ in range(3)] == [words(made) for _ in range(3)]
    assert words(made)[1] == b"bb"


def test_a_word_with_a_blank_and_bytes_that_are_no_text_are_kept() -> None:
    mix = make_mix([of_words("echo", ["ECHO", "a b", "\udcff"])], [1])
    assert words(Requests(mix, [b"q"], b"")) == [b"ECHO", b"a b", b"\xff"]


def test_an_id_is_used_once_unless_the_job_stays_as_it_is() -> None:
    get = [b"GETJOB", b"NOHANG", b"FROM", b"q"]
    requests = Requests(read_mix("getjob,ackjob", {}), [b"q"], b"")
    requests.ids.extend([b"one", b"two"])
    assert [words(requests) for _ in range(4)] == [get, [b"ACKJOB", b"one"], get, [b"ACKJOB", b"two"]]
    assert [words(requests) for _ in range(2)] == [get, get]
    assert requests.passed_over == [0, 1]
    shown = Requests(read_mix("getjob,show", {}), [b"q"], b"")
    shown.ids.extend([b"one", b"two"])
    assert [words(shown) for _ in range(6)][1::2] == [[b"SHOW", b"one"], [b"SHOW", b"two"], [b"SHOW", b"one"]]


def test_ids_are_those_that_were_handed_out_if_any_are() -> None:
    assert read_mix("addjob,getjob,ackjob", {}).handed_out
    assert not read_mix("addjob,ackjob", {}).handed_out


def test_a_command_is_written_as_nodes_read_it() -> None:
    assert encode([b"GETJOB", b"", b"q\r\n"]) == b"*3\r\n$6\r\nGETJOB\r\n$0\r\n\r\n$3\r\nq\r\n\r\n"


# The timers.


def test_short_waits_are_as_long_as_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    real = select.select

    def noted(readable: list[int], writable: list[int], strange: list[int], timeout: float) -> object:
        waited.append(timeout)
        return real(readable, writable, strange, timeout)

    monkeypatch.setattr(select, "select", noted)
    with load.FineSelector() as selector:
        for timeout in (0.0003, 0, 0.0, -1.0, 0.01):
            assert selector.select(timeout) == []
    assert waited == [0.0003]


# Reports.


def figures() -> LoadResult:
    added = CommandTally(Counter({1_000: 99, 20_000: 1}), Counter({"OOM full": 2}))
    fetched = CommandTally(Counter({500: 100}), empty=3, passed_over=4)
    return LoadResult(("addjob", "getjob"), (added, fetched), 2.0, False)


def test_a_report_has_a_row_for_each_command_and_one_for_all() -> None:
    added, fetched, both = report.rows(figures())
    assert (added.requests, added.errors, added.per_second) == (102, 2, 51.0)
    assert (added.p50_ms, added.p99_ms, added.p999_ms, added.max_ms) == (1, 1, 20, 20)
    assert (fetched.requests, fetched.empty, fetched.passed_over, fetched.mean_ms) == (100, 3, 4, 0.5)
    assert (both.command, both.requests, both.errors, both.p50_ms, both.max_ms) == ("all", 202, 2, 0.5, 20)


def test_programs_read_the_same() -> None:
    (_, *lines) = csv.reader(io.StringIO(report.as_csv(figures())))
    assert [line[0] for line in lines] == ["addjob", "getjob", "all"]
    told = report.as_object(figures(), {"left": 7})
    assert told["left"] == 7
    assert told["error_texts"] == {"addjob": {"OOM full": 2}}
    names = list(told["commands"][0])
    assert dict(zip(names, map(str, told["commands"][2].values()), strict=True)) == dict(
        zip(names, lines[2], strict=True)
    )


def test_what_else_there_is_to_say_is_said() -> None:
    assert list(report.remarks(figures())) == [
        "addjob: 2 times OOM full",
        "getjob: 3 of 100 found no job",
        "getjob: 4 times no job was known yet, and another command had its turn",
    ]
