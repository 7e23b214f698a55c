"""What schedules say: an example of all that one can say, and any of them."""

from typing import Final

from hypothesis import strategies as st

from disqued.core.model.calendar import (
    AT,
    CRON,
    EVERY,
    FIRED,
    IN_PAUSE,
    MISSED,
    OUTCOMES_KEPT,
    SKIPPED,
    UTC,
    JobTemplate,
    LastFiring,
    Refusal,
    ScheduleSetting,
)
from disqued.core.model.terms import NO_TERMS, Terms

TERMS: Final = Terms(3, 2_000, 60_000, 7_000, 6_000, ((b"a", b"\xff"),))
NIGHTLY: Final = ScheduleSetting(
    CRON, b"0 2 * * *", 0, b"Europe/Berlin", True, 5, 60_000,
    JobTemplate(b"reports \xff", b"sales\0", 86_400_000, 3_600_000, 1_000, 2, 7, True, TERMS),
)  # fmt: skip
JOB_ID: Final = b"DI" + b"0" * 40 + b"05a0SQ"
LAST: Final = LastFiring(JOB_ID, 21, ((21, FIRED), (22, SKIPPED), (23, MISSED), (24, IN_PAUSE), (25, SKIPPED)))
REFUSED: Final = Refusal(26, "NOREPL Störung".encode())

_spans = st.integers(0, 2**31 * 1_000)
_jobs = st.builds(
    JobTemplate, st.binary(max_size=20), st.binary(max_size=60), st.integers(1, 2**31 * 1_000), _spans, _spans,
    st.integers(0, 65_535), st.integers(0, 2**63 - 1), st.booleans(), st.sampled_from([NO_TERMS, TERMS]),
)  # fmt: skip
_times = (
    st.tuples(
        st.just(CRON), st.sampled_from([b"0 2 * * *", b"* * * * * *"]), st.just(0), st.sampled_from([UTC, b"CET"])
    )
    | st.tuples(st.just(EVERY), st.just(b""), st.integers(1, 2**31 * 1_000), st.just(UTC))
    | st.tuples(st.just(AT), st.just(b""), st.integers(1, 2**43), st.just(UTC))
)


@st.composite
def schedules(draw: st.DrawFn) -> ScheduleSetting:
    """Draw what a schedule says."""
    kind, line, number, zone = draw(_times)
    return ScheduleSetting(
        kind, line, number, zone, draw(st.booleans()), draw(st.integers(0, 1_000)), draw(_spans), draw(_jobs)
    )


@st.composite
def firings(draw: st.DrawFn) -> LastFiring:
    """Draw what became of the last instants of a schedule."""
    job = draw(st.just((b"", 0)) | st.tuples(st.just(JOB_ID), st.integers(0, 30)))
    outcomes = draw(st.dictionaries(st.integers(0, 30), st.integers(MISSED, FIRED), max_size=OUTCOMES_KEPT))
    return LastFiring(*job, tuple(sorted(outcomes.items())))


refusals = st.builds(Refusal, st.integers(0, 30), st.sampled_from([b"PAUSED", "OOM Störung".encode()]))
