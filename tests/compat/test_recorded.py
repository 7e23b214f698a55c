"""Our replies beside those that Disque 1.0-rc1 gave to the same commands, byte for byte but for what is listed."""

import re

import pytest

from tests.compat.differences import DIFFERENCES, Difference, expected
from tests.compat.playing import Exchange, load

RECORDED = load()


@pytest.mark.parametrize("number", range(len(RECORDED)), ids=[recorded.name for recorded in RECORDED])
def test_the_reply_is_the_recorded_one_or_differs_as_listed(exchanges: list[Exchange], number: int) -> None:
    exchange = exchanges[number]
    assert bytes(exchange.ours()) == bytes(expected(exchange, DIFFERENCES))


@pytest.mark.parametrize("difference", DIFFERENCES, ids=[difference.key for difference in DIFFERENCES])
def test_every_difference_that_is_listed_shows(exchanges: list[Exchange], difference: Difference) -> None:
    others = [other for other in DIFFERENCES if other is not difference]
    shows = [one for one in exchanges if difference.applies_to(one) and one.ours() != expected(one, others)]
    assert shows, f"no recorded reply differs by {difference.key} any more: take it out of the table and the page"


def test_no_key_is_used_twice() -> None:
    assert len({difference.key for difference in DIFFERENCES}) == len(DIFFERENCES)


def test_job_ids_have_the_form_of_the_readme(exchanges: list[Exchange]) -> None:
    run = exchanges[0].run
    form = re.compile(b"DI" + run.node_id[:8] + rb"[0-9a-f]{32}[0-9a-f]{4}SQ")
    assert len(run.ids) == len(set(re.findall(rb"<id\d+>", b"".join(one.recorded.reply for one in exchanges))))
    for job_id in run.ids:
        assert form.fullmatch(job_id), job_id
