"""Requests that schemathesis makes of the OpenAPI document, sent to a real daemon: answers are what it promises.

For each operation a handful of requests that fit its schemas and a handful that do not, the same in every run.  Left
out is what would end or stop the daemon that is asked, or make it another node: SHUTDOWN ends it; DEBUG SLEEP and
CLIENT PAUSE stop it for up to an hour, or a week; CLUSTER RESET gives it another id.  Requests that would wait for
ever are changed: GETJOB and what else fetches never wait, and no copies on other nodes are asked for.
"""

from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from disqued.web import app  # noqa: F401 - declares every route
from disqued.web.api.openapi import shown_path
from disqued.web.routes import ROUTES
from tests import reports_sample
from tests.integration.daemon import HOST, free_port, launch
from tests.limits import seconds

EXAMPLES = 5  #: requests of either kind for each operation
LIMIT_S = seconds(30)
LEFT_OUT = {
    "/api/commands/SHUTDOWN", "/api/commands/DEBUG/SLEEP", "/api/commands/CLIENT/PAUSE",
    "/api/commands/CLUSTER/RESET",
}  # fmt: skip
ASKED = [
    entry for entry in ROUTES if entry.listed and entry.path not in LEFT_OUT and entry.media != "text/event-stream"
]
#: (method, path, mode); what takes nothing cannot be asked for wrongly.
CASES = [(entry.method, shown_path(entry), GenerationMode.POSITIVE) for entry in ASKED] + [
    (entry.method, shown_path(entry), GenerationMode.NEGATIVE) for entry in ASKED if entry.query or entry.body
]
CHECKS = [
    status_code_conformance, content_type_conformance, response_headers_conformance, response_schema_conformance,
]  # fmt: skip
#: Of what the server cannot do now: no copies, memory, journal.  They are told, and no fault of its.
TOLD = (503, 507)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The document as a daemon serves it."""
    port, folder = free_port(), tmp_path_factory.mktemp("api")
    reports_sample.write(folder / "reports.sqlite")
    options = ["--http-port", str(port), "--reports-file", str(folder / "reports.sqlite")]
    running = launch(folder / "data", options)
    yield schemathesis.openapi.from_url(f"http://{HOST}:{port}/api/openapi.json")
    running.stop()


def tame(case: Any) -> None:
    """Change a request that could wait for ever."""
    if isinstance(case.body, dict):
        if case.path.endswith("/GETJOB"):
            case.body["nohang"] = True
        if case.path.endswith("/QNOTIFY"):
            case.body["words"] = ["mailers", "0", "events"]
        # What is not allowed stays: that the server says so is what is asked here.
        for name, least in (("block", -inf if case.path.endswith("/RQ.POP") else 0), ("replicate", 1)):
            value = case.body.get(name)
            if type(value) in (int, float) and value == int(value) and value >= least:
                del case.body[name]


@pytest.mark.parametrize(
    ("method", "path", "mode"), CASES, ids=[f"{method} {path} {mode.value}" for method, path, mode in CASES]
)
def test_answers_are_what_the_document_promises(api: Any, method: str, path: str, mode: GenerationMode) -> None:
    operation = api[path][method]

    @settings(
        max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
        verbosity=Verbosity.quiet, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        tame(case)
        response = case.call(timeout=LIMIT_S)
        checks = CHECKS if response.status_code in TOLD else [*CHECKS, not_a_server_error]
        if mode is GenerationMode.NEGATIVE:
            checks = [*checks, negative_data_rejection]
        case.validate_response(response, checks=checks)

    ask()


def test_what_is_left_out_is_there() -> None:
    assert {entry.path for entry in ROUTES} >= LEFT_OUT
