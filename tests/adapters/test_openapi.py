"""The OpenAPI document says what the table of routes says, and is valid."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from pytest_twisted import ensureDeferred
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from disqued.web import app  # noqa: F401 - declares every route
from disqued.web.api.openapi import document, operation_id, placeholders, shown_path
from disqued.web.http.exchange import Role
from disqued.web.http.problems import MEDIA, STATUS
from disqued.web.routes import ROUTES, Route
from tests.adapters.http import AdminClient

LISTED = [entry for entry in ROUTES if entry.listed]
NAMES = [f"{entry.method} {entry.path}" for entry in LISTED]
DOCUMENT = document()


def operation(entry: Route) -> dict[str, Any]:
    """What the document says of a route."""
    found: dict[str, Any] = DOCUMENT["paths"][shown_path(entry)][entry.method.lower()]
    return found


def test_the_document_fits_the_schema_of_openapi_3_1() -> None:
    OPENAPI_31_VALIDATOR.validate(json.loads(json.dumps(DOCUMENT)))


def test_a_document_with_a_fault_would_not_fit_it() -> None:
    broken = {**DOCUMENT, "paths": {"/x": {"get": {"responses": {"two hundred": {}}}}}}
    assert not OPENAPI_31_VALIDATOR.is_valid(json.loads(json.dumps(broken)))


@ensureDeferred
async def test_the_document_is_served(admin: Callable[..., AdminClient]) -> None:
    status, headers, body = await admin().get("/api/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert body == json.loads(json.dumps(DOCUMENT))


VALUES: tuple[Any, ...] = (
    None, True, False, 5, -1, 2.5, "", "x", [], ["x"], [None], {}, {"x": 1}, {"base64": "AA=="}, {"base64": None},
)  # fmt: skip
ACTING = [entry for entry in LISTED if entry.body is not None and entry.tag != "commands"]


@pytest.mark.parametrize("entry", ACTING, ids=lambda entry: entry.path)
@ensureDeferred
async def test_the_server_refuses_what_the_schema_of_a_body_refuses(
    admin: Callable[..., AdminClient], entry: Route
) -> None:
    """Each field, and each field of a filter, with a value of each kind that JSON has."""
    assert entry.body is not None
    client, example = (
        admin(),
        {**entry.example, "dry_run": True} if "dry_run" in entry.body["properties"] else entry.example,
    )
    validator = jsonschema_rs.validator_for(dict(entry.body))
    bodies = [{**example, name: value} for name in entry.body["properties"] for value in VALUES]
    fields = entry.body["properties"].get("filter", {}).get("properties", ())
    bodies += [{**example, "filter": {name: value}} for name in fields for value in VALUES]
    refused = 0
    for body in bodies:
        status, _, answer = await client.post(entry.path, body)
        if not validator.is_valid(body):
            assert status == 400, (body, answer)
            refused += 1
        elif status == 400:
            assert "; allowed " not in answer["detail"] or "is null" not in answer["detail"], (body, answer)
    assert refused > 0


def test_every_route_stands_in_it_once_under_a_name_of_its_own() -> None:
    operations = [one for path in DOCUMENT["paths"].values() for one in path.values()]
    assert len(operations) == len(LISTED)
    assert len({one["operationId"] for one in operations}) == len(LISTED)
    assert {one["operationId"] for one in operations} == {operation_id(entry) for entry in LISTED}


@pytest.mark.parametrize("entry", LISTED, ids=NAMES)
def test_a_route_is_told_whole(entry: Route) -> None:
    told = operation(entry)
    assert told["tags"] == [entry.tag]
    assert told["summary"]
    parameters = {(one["in"], one["name"]) for one in told.get("parameters", ())}
    assert parameters == {("path", name) for name in placeholders(entry)} | {("query", one.name) for one in entry.query}
    assert ("requestBody" in told) is (entry.body is not None)
    assert entry.media in told["responses"]["200"]["content"]
    for word in entry.errors:
        described = told["responses"][str(STATUS[word])]
        assert word in described["description"]
        assert MEDIA in described["content"]
    if entry.role is not Role.NOBODY:
        assert {"401", "403"} <= set(told["responses"])
        assert told["security"] == [{"token": []}, {}]


@pytest.mark.parametrize("entry", LISTED, ids=NAMES)
def test_the_schemas_of_a_route_are_schemas(entry: Route) -> None:
    schemas = [entry.reply, *(param.schema for param in entry.query), *([] if entry.body is None else [entry.body])]
    for schema in schemas:
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


@pytest.mark.parametrize("entry", [entry for entry in LISTED if entry.body is not None], ids=lambda one: str(one.path))
def test_the_example_of_a_route_fits_its_body(entry: Route) -> None:
    assert entry.body is not None
    jsonschema_rs.validator_for(dict(entry.body)).validate(entry.example)
