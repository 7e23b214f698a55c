"""Sets of small numbers as bytes: what they hold, how large they are, and in which form."""

from random import Random

import pytest

from disqued.core.model import marks


def made_of(*numbers: int) -> bytes:
    """A set of these numbers, put into it in that order."""
    made = b""
    for number in numbers:
        made = marks.with_one_more(made, number)
    return made


@pytest.mark.parametrize("highest", [7, 63, 4_000, 1_000_000])
@pytest.mark.parametrize("count", [1, 5, 200])
@pytest.mark.parametrize("seed", range(3))
def test_a_set_holds_what_was_put_into_it(highest: int, count: int, seed: int) -> None:
    rng = Random(seed)
    members = rng.sample(range(highest + 1), min(count, highest + 1))
    made = b""
    for at, number in enumerate(members):
        assert not marks.has(made, number)
        made = marks.with_one_more(made, number)
        assert marks.has(made, number)
        assert marks.count(made) == at + 1
    assert marks.numbers(made) == sorted(members)
    assert not any(marks.has(made, number) for number in range(highest + 1) if number not in members)


@pytest.mark.parametrize(
    ("numbers", "bytes_"),
    [
        ((), b""), ((0,), b"\x01"), ((3, 0), b"\x09"), ((8,), b"\x00\x01"), ((159,), bytes(19) + b"\x80"),
        ((160,), b"\x00\x00\x00\xa0\x00"), ((160, 256), b"\x00\x00\x00\xa0\x00\x00\x01\x00\x00"),
    ],
)  # fmt: skip
def test_a_set_has_the_form_that_is_smaller(numbers: tuple[int, ...], bytes_: bytes) -> None:
    assert made_of(*numbers) == bytes_


def test_a_list_becomes_a_bit_map_when_that_is_no_larger_and_a_bit_map_a_list_when_that_is_a_quarter() -> None:
    sparse = made_of(1_000, *range(30))
    assert marks._is_list(sparse)
    dense = marks.with_one_more(sparse, 30)
    assert not marks._is_list(dense)
    assert marks._is_list(sparse) != marks._is_list(dense)
    assert len(dense) == 126
    size = 4 * (33 * 4 + 1)
    assert not marks._is_list(marks.with_one_more(dense, size * 8 - 1))
    assert marks._is_list(marks.with_one_more(dense, size * 8))
    assert marks.numbers(marks.with_one_more(dense, size * 8)) == [*range(31), 1_000, size * 8]


@pytest.mark.parametrize(("size", "cost"), [(0, 0), (1, 0), (2, 48), (15, 48), (16, 64), (1_500, 1_536)])
def test_a_set_costs_what_its_object_takes(size: int, cost: int) -> None:
    assert marks.cost(b"\x01" * size) == cost
