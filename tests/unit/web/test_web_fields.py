"""What the schemas of commands say of each field is what the server takes in JSON."""

import re
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest

from disqued.commands.table import Field, parse
from disqued.errors import CommandError
from disqued.web.api.fields import COMMANDS, DEFAULTS, schema, words
from disqued.web.http.exchange import QueryParameter
from disqued.web.http.inputs import _read_param
from disqued.web.http.problems import Problem
from disqued.web.http.values import BYTES
from disqued.web.http_reference import _shape
from disqued.web.routes import ROUTES

#: One value of each kind that JSON has, and some that are nearly right.
VALUES: tuple[Any, ...] = (
    None, True, False, 5, -1, 2.5, 5.0, 2**64, "", "x", "yes", "5", [], ["x"], [None], [True], [5], {}, {"x": 1},
    {"base64": "AA=="}, {"base64": None}, {"base64": "!"}, {"base64": "AA==", "x": 1},
)  # fmt: skip
FIELDS = [(name, field) for name, entry in COMMANDS.items() for field in entry.fields]
TYPE_IS_WRONG = re.compile(
    r"is (null|true|false|a whole number|a number|a string|a list|an object); |base64 is not valid"
)


def filling(found: Mapping[str, Any]) -> Any:
    """A value that fits a schema."""
    if "oneOf" in found:
        return "x"
    if found.get("enum"):
        return found["enum"][0]
    if found.get("pattern"):
        return "DI0000000000000000000000000000000000000000000000SQ"[:48]
    kind = found.get("type")
    if kind == "object":
        return {name: filling(each) for name, each in found.get("properties", {}).items()}
    if kind == "array":
        return [filling(found["items"])]
    return {"integer": max(1, found.get("minimum", 1)), "number": 1.5, "boolean": True}.get(str(kind), "x")


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=[f"{name} {field.name}" for name, field in FIELDS])
def test_a_field_takes_the_json_that_its_schema_allows_and_no_other(name: str, field: Field) -> None:
    entry, whole = COMMANDS[name], schema(COMMANDS[name])
    validator = jsonschema_rs.validator_for({**whole, "$schema": "https://json-schema.org/draft/2020-12/schema"})
    others = {each: filling(whole["properties"][each]) for each in whole.get("required", ()) if each != field.name}
    for value in VALUES:
        given = {**others, field.name: value}
        problem = ""
        try:
            call = words(entry, given)
        except Problem as error:
            problem = error.detail
        if validator.is_valid(given):
            assert not TYPE_IS_WRONG.search(problem), (value, problem)
        elif not problem:
            with pytest.raises(CommandError):
                parse(entry, call)


PARAMS = [param for entry in ROUTES for param in entry.query]


@pytest.mark.parametrize("param", PARAMS, ids=lambda param: param.name)
def test_a_parameter_takes_the_texts_that_its_schema_allows_and_no_other(param: QueryParameter) -> None:
    if param.schema.get("format") == "bytes" or "pattern" in param.schema:  # the route itself looks at these
        return
    kind = param.schema.get("type")
    for text in ("", "x", "true", "false", "null", "5", "-1", "0", "2.5", "100000000000000000000"):
        whole = re.fullmatch(r"-?[0-9]+", text)
        value: Any = int(text) if kind == "integer" and whole else text
        if kind == "boolean" and text in ("true", "false"):
            value = text == "true"
        try:
            _read_param(param, text.encode())
            took = True
        except Problem:
            took = False
        assert took is jsonschema_rs.is_valid(dict(param.schema), value), text


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"type": ["string", "null"]}, "a string or null"),
        ({"type": ["integer", "null"], "minimum": 0}, "a whole number, 0 or more or null"),
        ({"anyOf": [BYTES, {"type": "null"}]}, 'a string or `{"base64": ...}` or null'),
        ({"type": "boolean"}, "true or false"),
    ],
)
def test_the_reference_says_each_type_in_words(found: Mapping[str, Any], said: str) -> None:
    assert _shape(found) == said


def test_a_value_is_never_taken_for_that_of_the_field_before_it() -> None:
    with pytest.raises(Problem) as refused:
        words(COMMANDS["WORKER KEEPALIVE"], {"epoch": 2})
    assert refused.value.detail == "epoch is given without id; allowed is epoch together with that"
    assert words(COMMANDS["WORKER KEEPALIVE"], {"id": "w", "epoch": 2}) == [b"WORKER", b"KEEPALIVE", b"w", b"2"]


def test_what_stands_in_its_place_alone_may_be_left_out() -> None:
    job_id = filling({"pattern": "an id"})
    for name, given, call in (
        ("ADDJOB", {"queue": "q", "body": "b"}, b"ADDJOB q b 5000"),
        ("ADDJOB", {"queue": "q", "body": "b", "timeout": 0, "delay": 5}, b"ADDJOB q b 0 DELAY 5"),
        ("QPEEK", {"queue": "q"}, b"QPEEK q 10"), ("QPEEK", {"queue": "q", "count": -1}, b"QPEEK q -1"),
        ("WAITJOB", {"ids": [job_id]}, b"WAITJOB 0 " + job_id.encode()), ("CONFIG GET", {}, b"CONFIG GET *"),
    ):  # fmt: skip
        assert words(COMMANDS[name], given) == call.split()
    for (name, field), default in DEFAULTS.items():
        told = schema(COMMANDS[name])
        assert field not in told.get("required", ())
        assert told["properties"][field]["default"] == default
        assert f"Unless given: {default}." in told["properties"][field]["description"]
        with pytest.raises(Problem):
            words(
                COMMANDS[name],
                {each: filling(told["properties"][each]) for each in told.get("required", ())} | {field: None},
            )


def test_null_is_answered_with_what_is_allowed_of_a_body() -> None:
    for value, kind in ((None, "null"), (True, "true"), ([], "a list")):
        with pytest.raises(Problem) as refused:
            words(COMMANDS["ADDJOB"], {"queue": "q", "body": value, "timeout": 0})
        assert refused.value.detail == f'body is {kind}; allowed are a string, a whole number, or {{"base64": ...}}'


def test_a_value_of_parts_says_which_of_them_may_be_left_out() -> None:
    with pytest.raises(Problem) as refused:
        words(COMMANDS["QPOLICY"], {"queue": "q", "sets": True, "backoff": [1, 5]})
    assert refused.value.detail.endswith("allowed are objects with first, and most if wanted")


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ({"count": 10, "per": 1, "burst": 20}, b"RATE 10 PER 1 BURST 20"),
        ({"burst": 20, "per": 1, "count": 10}, b"RATE 10 PER 1 BURST 20"),
        ({"count": 10, "per": 60}, b"RATE 10 PER 60"),
    ],
)
def test_a_value_of_parts_has_the_words_between_them(rate: dict[str, int], said: bytes) -> None:
    assert (
        words(COMMANDS["QPOLICY"], {"queue": "q", "sets": True, "rate": rate})
        == b"QPOLICY q SET ".split() + said.split()
    )


def test_a_value_of_parts_with_words_says_which_of_them_are_needed() -> None:
    with pytest.raises(Problem) as refused:
        words(COMMANDS["QPOLICY"], {"queue": "q", "sets": True, "rate": {"count": 10}})
    assert refused.value.detail.endswith("allowed are objects with count and per, and burst if wanted")
