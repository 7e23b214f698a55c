"""The reference of the HTTP API, as a page of markdown, written from the table of routes.

    python -m disqued.web.http_reference > docs/reference/http.md

Every route has an example for curl; a test runs each of them on a real daemon.
"""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from disqued.web import app  # noqa: F401 - declares every route
from disqued.web.api.acts import ID
from disqued.web.api.openapi import TAGS
from disqued.web.http.exchange import Schema
from disqued.web.http.problems import STATUS
from disqued.web.routes import ROUTES, Route

BASE: Final = "http://127.0.0.1:7780"
COMMAND_LINE: Final = "python -m disqued.web.http_reference > docs/reference/http.md"
HEADINGS: Final = {
    "jobs": "Jobs", "queues": "Queues", "bulk": "Many jobs at once", "cluster": "The cluster", "node": "This node",
    "history": "Charts", "reports": "Reports", "access": "Actions taken",
    "health": "Health", "metrics": "Metrics", "commands": "Any command",
}  # fmt: skip
#: When each error word comes.
WHEN: Final = {
    "HTTP": "Not of a command: HTTP itself, the JSON, a parameter, a token or a right is at fault.",
    "ERR": "The command refuses a value; `detail` says what is allowed.",
    "BADID": "This is no job id.",
    "NOJOB": "This node does not know the job.",
    "NOQUEUE": "This node has no such queue.",
    "WRONGTYPE": "The queue holds events, and the command is for jobs, or the other way round.",
    "EMPTYKEY": "This node has no such list.",
    "CANCELLED": "The job was cancelled; its consumer should stop.",
    "TOOLATE": "Half of the job's TTL is over: its next delivery cannot be put off any more.",
    "PAUSED": "The queue is paused for what comes in.",
    "MAXLEN": "The queue is as long as MAXLEN of the request allows.",
    "NOREPL": "Too few nodes took a copy in time; the job may be in the queue of some.",
    "BUSY": "Too many events are being added in the background; wait for some, or raise `bg-qadd-pool-size`.",
    "OOM": "Memory is full.",
    "LEAVING": "This node is leaving the cluster; ask another one.",
    "LOADING": "The jobs are being loaded.",
    "MISCONF": "The journal cannot be written.",
    "TRYAGAIN": "CLIENT PAUSE is in force, or the node stops.",
    "UNBLOCKED": "CLIENT UNBLOCK has ended the wait. It ends those of connections of clients.",
    "NOAUTH": "The command wants a password.",
    "WRONGPASS": "The password is wrong. Commands that take one are for connections of clients.",
    "NOPERM": "A user may not do that. Users are for connections of clients; here a token says who may do what.",
    "NOPROTO": "There is no such version of the protocol. Commands that take one are for connections of clients.",
    "NOWORKER": "No such worker is alive on this node.",
    "STALE": "Somebody else is this worker by now.",
    "NOTWORKING": "The worker does not work on this queue.",
    "DUPLICATE": "There is such a task already, or the request has it twice.",
    "NOREPORTS": "`reports-file` is not set, or no run of `disqued-spark` has made that file yet.",
    "BADREPORTS": "The file of the reports cannot be read now: it is locked, damaged, or of another version.",
}

_INTRODUCTION = f"""\
# HTTP API

<!-- Written by `{COMMAND_LINE}`: change the routes, not this page. -->

The daemon serves this API, the [pages](../how-to/admin.md) and the metrics on `http-port`, 7780 unless set, and on the
loopback interface alone unless `http-bind` says more. Everything here is made of the [commands](commands.md): the
checks, the defaults and the errors are the same as for clients. The OpenAPI 3.1 document at `/api/openapi.json` says
what this page says, for programs.

    curl {BASE}/api/hello

## Who may do what

Without an `http-token-file` everybody who reaches the port may do everything, which is why it is bound to the loopback
interface. With one, each request brings a token:

    curl -H "Authorization: Bearer $TOKEN" {BASE}/api/hello

A token has a role. A *viewer* looks, an *operator* acts on jobs and queues, too, and an *admin* changes the node and
the cluster, too. To see the bodies of jobs is a right of its own: without it an answer has `"body_withheld": true` in
the place of a body, and what would consist of bodies is refused. [How to](../how-to/admin.md) give out tokens.

## Bytes

Names of queues and bodies of jobs are bytes, and JSON knows only text. Bytes that are UTF-8 are a string; all others
are an object with their base64, in requests and in answers:

    {{"queue": "mail", "body": {{"base64": "/wA="}}}}

In a path each byte of a queue's name that is no letter, digit or one of `-._~` is written as `%` and two hex digits:
the queue `a/b` is `/api/qstat/a%2Fb`. A name that is empty, `.` or `..` gets lost in programs that tidy up paths; ask
with `?queue=`, or let curl send the path as it is with `--path-as-is`.

## What is sent

Bodies are JSON objects, sent with `Content-Type: application/json`. Their fields have the names of the fields of the
command. A field that is left out is as if its word was left out of the command; a field that is not known is refused,
with the names of those that are. Numbers that have to be whole are numbers, not strings. All objects of a body have
50000 fields together at most.

## What comes back

Answers of a kilobyte or more come in gzip to clients that take it. A GET whose answer is at hand as a whole, 1 MiB at
most, has an `ETag`: a program that keeps an answer asks again with `If-None-Match`, and hears 304 without a body while
nothing has changed. No cache keeps anything (`Cache-Control: no-store`), but for the files of the pages.

    curl --compressed --etag-save config.tag {BASE}/api/config
    curl --compressed --etag-compare config.tag {BASE}/api/config

## Names of one thing

Answers have the names that the commands answer with, and these differ from the names of fields. `unset` of QPOLICY
takes the names that QPOLICY GET shows.

| Word | Field of a request | QPOLICY GET, SCHEDULE GET | QSTAT, SHOW |
|---|---|---|---|
| INFLIGHT | `in_flight` | `inflight` | `inflight` |
| GROUPINFLIGHT | `group_in_flight` | `groupinflight` | `group-inflight` |
| GROUPRATE | `group_rate` | `grouprate` | `group-rate` |
| MAXTRIES | `max_tries` | `maxtries` | `max-tries` |
| KEEPDEAD | `keep_dead` | `keepdead` | `keep-dead` |
| RESULT | `result` | `result` | `keep-result` |
| CATCHUP | `catch_up` | `catchup` | |
| ASYNC | `asynchronous` | `async` | |
| TZ | `zone` | `zone` | |

## Errors

An answer other than 200 is a problem document (RFC 9457) of the type `application/problem+json`:

    {{
      "type": ".../docs/reference/http.md#errors",
      "title": "Not found",
      "status": 404,
      "detail": "there is no queue 'mail' on this node; ADDJOB makes one",
      "code": "NOQUEUE"
    }}

`code` is the error word of the command, which never changes: programs branch on it. `detail` is for people.
"""


def page() -> str:
    """The whole page."""
    lines = [_INTRODUCTION.rstrip(), "", *_errors(), "", "## All routes", "", *_index()]
    for tag in _tags():
        lines += ["", f"## {_heading(tag)}", "", TAGS.get(tag, "")]
        for entry in _listed(tag):
            lines += _route(entry)
    return "\n".join([*lines, ""])


def _listed(tag: str) -> list[Route]:
    return [entry for entry in ROUTES if entry.listed and entry.tag == tag]


def _tags() -> list[str]:
    """Tags in the order of the page: those of the API, then whatever else there is."""
    used = dict.fromkeys(entry.tag for entry in ROUTES if entry.listed)
    return [*(tag for tag in HEADINGS if tag in used), *(tag for tag in used if tag not in HEADINGS)]


def _heading(tag: str) -> str:
    return HEADINGS.get(tag, tag.capitalize())


def _errors() -> Iterator[str]:
    yield "| Word | Status | When |"
    yield "|---|---|---|"
    for word, when in WHEN.items():
        status = "4xx, 5xx" if word == "HTTP" else str(STATUS[word])
        yield f"| `{word}` | {status} | {when} |"
    yield ""
    yield "| Status | What HTTP finds wrong |"
    yield "|---|---|"
    yield from (
        "| 400 | The request line, a header, the JSON, a field or a parameter. |",
        "| 401 | There is no token, or it is not known. |",
        "| 403 | The role does not suffice, bodies may not be seen, or another web site sent the request. |",
        "| 404 | There is nothing at this path, or `rename-command` took the command away. |",
        "| 405 | The path knows other methods: those in the header `Allow`. |",
        "| 408, 413, 431 | The request came too slowly, or is too large. |",
        "| 415 | The body is not said to be JSON in UTF-8, or it is compressed. |",
        "| 417 | The header `Expect` holds something other than `100-continue`. |",
        "| 421 | The request was meant for a host name that `http-hosts` does not allow. |",
        "| 500 | A bug of the server: it is logged. |",
        "| 501 | The method or the transfer coding is not known; chunked is. |",
        "| 503 | There are too many connections, or this one holds the most while all of them hold too much. |",
        "| 505 | Another version than HTTP/1.1 and HTTP/1.0. |",
    )


def _index() -> Iterator[str]:
    for tag in _tags():
        links = ", ".join(f"[{title(entry)}](#{_anchor(entry)})" for entry in _listed(tag))
        yield f"- {_heading(tag)}: {links}"


def title(entry: Route) -> str:
    """Method and path as people read them."""
    return f"{entry.method} {entry.path}".replace("<", "{").replace(">", "}")


def _anchor(entry: Route) -> str:
    kept = (letter for letter in title(entry).lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")


def _route(entry: Route) -> Iterator[str]:
    yield from ("", f"### {title(entry)}", "", f"{entry.summary.rstrip('.')}.", "")
    if entry.doc:
        yield from (*entry.doc.splitlines(), "")
    yield from _example(entry)
    yield from _facts(entry)
    if entry.query:
        yield from ("", "| Parameter | What it is | Allowed |", "|---|---|---|")
        yield from (_row(param.name, param.schema, param.doc) for param in entry.query)
    if entry.body is not None and entry.body.get("properties"):
        yield from ("", "| Field | What it is | Allowed |", "|---|---|---|")
        needed = entry.body.get("required", ())
        for name, schema in entry.body["properties"].items():
            yield _row(name, schema, schema.get("description", ""), needed=name in needed)


def _example(entry: Route) -> Iterator[str]:
    yield f"```sh\n{curl(entry)}\n```"
    yield ""
    yield f"- For: {entry.whose}"
    yield f"- The example answers {entry.example_status}"


def curl(entry: Route) -> str:
    """The command line of the example; a body goes on a line of its own."""
    url = f"{BASE}{entry.at or entry.path.replace('<queue>', 'mail').replace('<id>', ID)}"
    if entry.body is None:
        return f"curl {shlex.quote(url)}" if entry.method == "GET" else f"curl -X {entry.method} {shlex.quote(url)}"
    data = json.dumps(entry.example if entry.example is not None else {}, ensure_ascii=False)
    return f"curl {shlex.quote(url)} -H 'Content-Type: application/json' \\\n    -d {shlex.quote(data)}"


def _facts(entry: Route) -> Iterator[str]:
    told = f"- Answers: {_shape(entry.reply)}" if entry.reply else f"- Answers: `{entry.media}`"
    yield told
    words = [word for word in entry.errors if word not in ("ERR", "TRYAGAIN", "LOADING")]
    if words:
        yield f"- Error words beside those of every command: {', '.join(f'`{word}`' for word in words)}"


def _row(name: str, schema: Schema, doc: str, *, needed: bool = False) -> str:
    first = doc.partition(" Allowed: ")[0]
    cells = (f"`{name}`{', needed' if needed else ''}", first, _shape(schema))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _shape(schema: Schema) -> str:
    """A schema in words."""
    if schema.get("enum"):
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(map(_shape, schema[word])))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(_shape({**schema, "type": each}) for each in kind)
    if kind == "null":
        return "null"
    if kind == "array":
        return f"a list of: {_shape(schema.get('items', {}))}"
    if kind == "object":
        return _object(schema)
    words = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a string"}
    return words.get(str(kind), "anything") + _bounds(schema)


def _object(schema: Schema) -> str:
    names: Mapping[str, Any] = schema.get("properties", {})
    if set(names) == {"base64"}:
        return '`{"base64": ...}`'
    return f"an object with {', '.join(f'`{name}`' for name in names)}" if names else "an object"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None or low == -(2**63):
        return ""
    return f", {low} or more" if high is None or high == 2**63 - 1 else f", {low} to {high}"


if __name__ == "__main__":
    sys.stdout.write(page())
