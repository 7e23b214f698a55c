"""Charts of the reports: grids that people can read, gaps where nothing is known, and no style of their own."""

import re
from xml.etree import ElementTree as ET

import pytest

from disqued.reports import value_formats
from disqued.reports.charts import HEIGHT, WIDTH, Chart, ChartLine, scale, spark, time_label, time_step
from disqued.wire import texts

HOUR = 3_600
DAY = 24 * HOUR
START = 1_795_305_600  # 2026-11-22T00:00:00Z
NAMES = {"svg": ""}


def chart(
    *values: float | None, times: list[int] | None = None, limit: float | None = None, label: str = "acks"
) -> Chart:
    at = times if times is not None else [START + HOUR * number for number in range(len(values))]
    return Chart("Jobs per hour", at, [ChartLine(label, "one", values)], value_formats.count, HOUR, limit=limit)


def path_of(drawn: str) -> str:
    [path] = re.findall(r'<path class="c-line c-one" d="([^"]*)"', drawn)
    return str(path)


@pytest.mark.parametrize(
    ("highest", "grid"),
    [
        (0, [0, 1]), (1, [0, 0.5, 1]), (7, [0, 2, 4, 6, 8]), (8, [0, 2, 4, 6, 8]), (8_200, [0, 5_000, 10_000]),
        (0.031, [0, 0.01, 0.02, 0.03, 0.04]), (1e15, [0, 5e14, 1e15]),
    ],
)  # fmt: skip
def test_a_grid_reaches_the_highest_value_in_few_round_steps(highest: float, grid: list[float]) -> None:
    assert scale(highest) == grid


def test_a_grid_of_spans_has_steps_of_clocks() -> None:
    seconds = 1_000_000
    assert [value_formats.span(value) for value in scale(100 * seconds, value_formats.SPAN_STEPS)] == [
        "0", "30 s", "1 min", "1 min 30 s", "2 min",
    ]  # fmt: skip
    assert [value_formats.span(value) for value in scale(0.9 * seconds, value_formats.SPAN_STEPS)] == [
        "0",
        "500 ms",
        "1 s",
    ]
    assert [value_formats.span(value) for value in scale(5 * 3_600 * seconds, value_formats.SPAN_STEPS)] == [
        "0", "2 h", "4 h", "6 h",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("span", "step"), [(0, 300), (6 * HOUR, HOUR), (DAY, 6 * HOUR), (7 * DAY, 2 * DAY), (90 * DAY, 28 * DAY)]
)
def test_times_are_labelled_as_often_as_there_is_room(span: int, step: int) -> None:
    assert time_step(span, 492) == step


def test_a_midnight_is_named_by_its_day() -> None:
    assert [time_label(START + hours * HOUR, 6 * HOUR) for hours in (0, 6, 12)] == ["22 Nov", "06:00", "12:00"]
    assert time_label(START + HOUR, DAY) == "22 Nov"


def test_a_chart_is_xml_that_needs_no_style_and_keeps_within_its_box() -> None:
    drawn = chart(5, None, 3, 4, 1_000, limit=600.0, label='<b>"&').svg
    root = ET.fromstring(drawn)
    assert root.get("aria-label") == "Jobs per hour"
    assert "style" not in drawn
    assert "<b>" not in drawn
    for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", drawn):
        assert 0 <= float(x) <= WIDTH
        assert 0 <= float(y) <= HEIGHT
    assert "target 600" in drawn
    assert [element.text for element in root.iter("title")][:2] == [
        '2026-11-22 00:00: <b>"& 5', '2026-11-22 02:00: <b>"& 3',
    ]  # fmt: skip


def test_what_is_not_known_is_a_gap_and_what_stands_alone_a_dot() -> None:
    drawn = chart(1, 2, None, 3, None, 4, 5).svg
    assert re.sub(r"[^MLZ]", "", path_of(drawn)) == "MLMML"
    assert drawn.count("<circle") == 1
    assert chart(None, None).svg.count("c-line") == 0


def test_times_that_are_missing_are_a_gap_too() -> None:
    drawn = chart(1, 2, 3, times=[START, START + HOUR, START + 9 * HOUR]).svg
    assert re.sub(r"[^ML]", "", path_of(drawn)) == "MLM"
    assert drawn.count("<circle") == 1


def test_a_single_time_stands_in_the_middle_and_none_at_all_is_drawn_too() -> None:
    [x] = re.findall(r'<circle class="c-dot c-one" cx="([\d.]+)"', chart(7).svg)
    assert float(x) == pytest.approx((58 + WIDTH - 10) / 2)
    ET.fromstring(chart().svg)


def test_values_above_others_stand_above_them() -> None:
    low, high = (float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path_of(chart(1, 9).svg)))
    assert low > high


def test_a_small_line_has_its_highest_value_at_the_top() -> None:
    drawn = spark([0, 4, None, 2], "Acks <mail>")
    assert ET.fromstring(drawn).get("aria-label") == "Acks <mail>"
    assert path_of(drawn) == "M1.0 20.0L40.3 2.0M119.0 11.0"
    ET.fromstring(spark([], "none"))
    assert path_of(spark([0.0, 0.0], "quiet")) == "M1.0 20.0L119.0 20.0"


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, value_formats.NONE), (0, "0"), (850, "850 µs"), (1_500, "1.5 ms"), (999_700, "1000 ms"),
        (2_354_000, "2.35 s"), (59_990_000, "60 s"), (250_000_000, "4 min 10 s"), (3_600_000_000, "1 h"),
        (183_600_000_000, "2 d 3 h"),
    ],
)  # fmt: skip
def test_spans_are_short_to_read(us: int | None, text: str) -> None:
    assert value_formats.span(us) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (850, "850"), (8_000, "8000"), (12_000, "12 k"), (1_500_000, "1.5 M"), (3e12, "3 T")],
)
def test_numbers_beside_a_grid_are_short(number: float, text: str) -> None:
    assert value_formats.short(number) == text


def test_shares_keep_what_is_small() -> None:
    assert [value_formats.share(part) for part in (None, 0, 0.0003, 0.031, 0.25, 1)] == [
        value_formats.NONE,
        "0 %",
        "0.03 %",
        "3.1 %",
        "25 %",
        "100 %",
    ]


def test_moments_are_read_as_they_were_written() -> None:
    assert value_formats.unix_s("2026-11-22T00:00:00Z") == value_formats.unix_s("2026-11-22") == START
    assert value_formats.unix_s("2026-99-99") is None
    assert value_formats.moment("2026-11-22T10:00:00Z") == "2026-11-22 10:00:00"
    assert value_formats.moment_us(START * 1_000_000 + 250_000) == "2026-11-22 00:00:00.250"
    assert value_formats.moment_us(2**62) == "beyond the calendar"


def test_nothing_in_a_text_is_hidden() -> None:
    assert value_formats.text("a\u202eb\x00\U000e0041") == "a\\u202eb\\x00\\U000e0041"
    assert value_formats.text("x" * 300, 3) == "xxx…"
    assert (value_formats.text(""), value_formats.text(None)) == ("(empty)", value_formats.NONE)


@pytest.mark.parametrize(
    "name", [b"", b"mail", "köln".encode(), b"\xff\x00", b"a\\b", b"\\xff", b"\\\\xff", bytes(range(256))]
)
def test_a_name_comes_back_from_its_text(name: bytes) -> None:
    assert texts.raw(texts.text(name)) == name
