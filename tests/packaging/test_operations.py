"""What stands in docs/operations is what a node exports: the list of metrics, the dashboard and the alert rules."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import attrs
import pytest
import pytest_twisted
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.adapters.http import admin
from tests.adapters.inprocess import start, wait_until

FOLDER = Path(__file__).parents[2] / "docs/operations"
PATHS = ("/metrics", "/metrics/per-queue")
#: Made by Prometheus itself.
BY_PROMETHEUS = {"up"}
_NAME = re.compile(r"\b(?:disqued_[a-z_]+|up)\b(?!:)")
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) ?\| (.+) \|$")


class Exported(NamedTuple):
    """A family as it was scraped."""

    kind: str
    labels: str
    doc: str


@attrs.define
class ShownCertificate:
    """One that ends long after every test."""

    ends_at: int = 1 << 32


@pytest_twisted.async_yield_fixture
async def scraped(tmp_path: Path) -> AsyncIterator[dict[str, tuple[dict[str, Exported], set[str]]]]:
    """Families by name, and names of samples, of both paths of a node that has done something."""
    running = start(tmp_path)
    await wait_until(lambda: not running.daemon.loading)
    client = admin(running)
    resp = await running.connect()
    await resp.call("ADDJOB", "mail", "body", 0)
    await resp.call("QADD", "events", 60, "body")
    await resp.call("QGET", "events", "mailers")
    running.daemon.tls.take("tls-port", cast(Any, ShownCertificate()))
    found = {}
    for path in PATHS:
        families = list(text_string_to_metric_families((await client.get(path)).body.decode()))
        samples = {sample.name for family in families for sample in family.samples}
        found[path] = ({_name(family): _exported(family) for family in families}, samples)
    yield found
    await client.stop()
    await running.stop()


def _name(family: Any) -> str:
    return f"{family.name}_total" if family.type == "counter" else str(family.name)


def _exported(family: Any) -> Exported:
    labels = {label for sample in family.samples for label in sample.labels} - {"le"}
    return Exported(family.type, ", ".join(sorted(labels)), family.documentation)


def _documented() -> dict[str, dict[str, Exported]]:
    """Rows of the tables of metrics.md, by path and name."""
    found: dict[str, dict[str, Exported]] = {path: {} for path in PATHS}
    path = ""
    for line in (FOLDER / "metrics.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            path = line[3:].strip("`")
        elif (row := _ROW.match(line)) and path in found:
            found[path][row[1]] = Exported(row[2], row[3].strip(), row[4])
    return found


@pytest.mark.parametrize("path", PATHS)
@pytest_twisted.ensureDeferred
async def test_the_list_of_metrics_is_what_is_exported(scraped: Any, path: str) -> None:
    assert _documented()[path] == scraped[path][0]


#: What `promtool check metrics` calls no base unit, an abbreviation of one, or a type; a unit ends a name.
NO_BASE_UNITS = set(
    """
    nanoseconds microseconds milliseconds minutes hours days weeks bits kilobytes kibibytes megabytes mebibytes
    gigabytes gibibytes percent ns us ms s sec secs min mins m h hr hrs d kb mb gb tb pb b
    """.split()
)
TYPES = {"counter", "gauge", "histogram", "summary", "untyped", "metric"}
UNITS = ("seconds", "bytes")
#: Ends of names of samples; a gauge that is always 1 may end with info.
RESERVED = {"bucket", "count", "sum", "created"}
RESERVED_LABELS = {"le", "quantile", "job", "instance"}


def name_faults(name: str, kind: str) -> list[str]:
    """What is wrong with the name of a family."""
    faults = []
    if not re.fullmatch(r"disqued(_[a-z][a-z0-9]*)+", name):
        faults.append("allowed are lower-case words with underlines between, disqued the first")
    words = name.split("_")
    if (kind == "counter") != (words[-1] == "total"):
        faults.append("counters, and no others, end with total")
    meaning = words[:-1] if kind == "counter" else words
    faults += [f"{word} is not allowed" for word in meaning if word in NO_BASE_UNITS | TYPES]
    faults += [f"{unit} stands before the end" for unit in UNITS if unit in meaning[:-1]]
    if meaning[-1] in RESERVED:
        faults.append(f"{meaning[-1]} is the end of a sample's name")
    return faults


@pytest.mark.parametrize("path", PATHS)
@pytest_twisted.ensureDeferred
async def test_names_are_as_prometheus_wants_them(scraped: Any, path: str) -> None:
    found = scraped[path][0]
    assert {name: faults for name, family in found.items() if (faults := name_faults(name, family.kind))} == {}
    for name, family in found.items():
        assert family.doc.endswith("."), name
        assert not RESERVED_LABELS & set(family.labels.split(", ")), name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("disque_queue_len_jobs", "gauge"), ("process_cpu_seconds_total", "counter"), ("disqued_jobs", "counter"),
        ("disqued_jobs_total", "gauge"), ("disqued_wait_ms", "gauge"), ("disqued_wait_minutes_total", "counter"),
        ("disqued_jobs_gauge", "gauge"), ("disqued_jobs_count", "gauge"), ("disqued_seconds_of_wait", "gauge"),
        ("disqued_Jobs", "gauge"), ("disqued:jobs", "gauge"), ("disqued_memory_kb", "gauge"),
    ],
)  # fmt: skip
def test_other_names_are_not_let_through(name: str, kind: str) -> None:
    assert name_faults(name, kind)


def _panels() -> list[dict[str, Any]]:
    dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def _rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def _expressions() -> list[str]:
    targets = [target["expr"] for panel in _panels() for target in panel["targets"]]
    return targets + [rule["expr"] for rule in _rules()]


@pytest_twisted.ensureDeferred
async def test_dashboard_and_rules_use_only_what_is_exported(scraped: Any) -> None:
    exported = set.union(*(samples for _, samples in scraped.values())) | BY_PROMETHEUS
    for expression in _expressions():
        # What stands in quotes is the value of a label.
        names = set(_NAME.findall(re.sub(r'"[^"]*"', '""', expression)))
        assert names, expression
        assert names <= exported, expression


@pytest_twisted.ensureDeferred
async def test_labels_that_are_asked_for_are_there(scraped: Any) -> None:
    families = {name: family for found, _ in scraped.values() for name, family in found.items()}
    given = {"job", "instance"}
    for expression in _expressions():
        for name, selector in re.findall(r"(disqued_[a-z_]+)\{([^}]*)\}", expression):
            asked = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", re.sub(r'"[^"]*"', '""', selector)))
            family = families[name.removesuffix("_bucket")]
            assert asked <= given | set(family.labels.split(", ")), expression


def test_parentheses_are_closed() -> None:
    for expression in _expressions():
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing), expression


def test_rules_say_what_is_wrong_and_what_to_do() -> None:
    rules = _rules()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))


def test_panels_have_places_of_their_own() -> None:
    places: set[tuple[int, int]] = set()
    for panel in _panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & places, panel["title"]
        places |= cells
