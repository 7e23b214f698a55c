"""Any command by its name: POST /api/commands/ADDJOB with the names of its fields; a subcommand is CONFIG/GET.

Each command of the table is a route of its own, whose body is made of the command's fields and whose role of its flags:

    flag admin                           admin
    flag readonly, and changes nothing   viewer
    everything else                      operator

The declaration of a command says what else matters here.  What is answered with bodies of jobs in it needs the right to
see them.  A command that concerns the connection that it comes on has no meaning, and says so; so do those of ACL, as
users are let in at the port for clients alone.  One that rename-command took away or renamed is a problem 404.
"""

from typing import Any, Final

from disqued.commands.table import Command, Flag
from disqued.web.api.acts import ID
from disqued.web.api.fields import COMMANDS, error_words, reply_schema, schema, words
from disqued.web.api.objects import without_secrets
from disqued.web.http.exchange import Reply, Request, Role, object_of
from disqued.web.http.problems import Problem
from disqued.web.routes import route
from disqued.web.site import Site

#: Flagged as reading, since Disque flagged them so, and yet they change something.
CHANGING: Final = frozenset({"PAUSE", "SLOWLOG RESET"})
#: For admins alone, and yet they change nothing.
LOOKING: Final = frozenset({
    "CLIENT LIST", "CLUSTER COUNT-FAILURE-REPORTS", "CLUSTER INFO", "CLUSTER MYID", "CLUSTER NODES", "CONFIG GET",
    "DEBUG ERROR", "DEBUG STRUCTSIZE", "LATENCY DOCTOR", "LATENCY GRAPH", "LATENCY HISTORY", "LATENCY LATEST",
})  # fmt: skip
#: Fields that concern a connection, where the rest of the command does not.
_ONLY: Final[dict[str, tuple[str, ...]]] = {"HELLO": ()}

#: Bodies of the examples of the reference, and what they answer where that is not 200.
EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "ADDJOB": {"queue": "mail", "body": "to: ann", "timeout": 0, "retry": 60, "asynchronous": True, "key": "order-17"},
    "CLIENT KILL": {"id": 1_000_000},
    "CLIENT PAUSE": {"timeout": 0},
    "CLIENT UNBLOCK": {"id": 1_000_000},
    "CLUSTER ASK": {"node": "*", "command": "QPEEK", "arguments": ["mail", "1"]},
    "CLUSTER COUNT-FAILURE-REPORTS": {"id": "0f0c644fd3ccb51c2cedbd47fcb6f312646c993c"},
    "CLUSTER FORGET": {"id": "0f0c644fd3ccb51c2cedbd47fcb6f312646c993c"},
    "CLUSTER LEAVING": {},
    "CLUSTER MEET": {"ip": "127.0.0.1", "port": 7712},
    "CLUSTER RESET": {"hard": "soft"},
    "COMMAND DOCS": {"names": ["addjob"]},
    "COMMAND INFO": {"names": ["addjob", "config|get"]},
    "CONFIG GET": {"pattern": "maxmemory*"},
    "CONFIG SET": {"name": "slowlog-max-len", "value": 64},
    "DEBUG ERROR": {"text": "ERR as asked"},
    "DEBUG SLEEP": {"seconds": 0.01},
    "ECHO": {"message": {"base64": "/wA="}},
    "GETJOB": {"queues": ["mail"], "nohang": True, "with_counters": True},
    "INFO": {"section": "jobs"},
    "JSCAN": {"cursor": 0, "queue": "mail", "states": ["queued"], "full": "all"},
    "LATENCY GRAPH": {"event": "command"},
    "LATENCY HISTORY": {"event": "command"},
    "LOADJOB": {"record": ""},
    "PAUSE": {"queue": "mail", "words": ["state"]},
    "PING": {"message": "hello"},
    "QADD": {"queue": "events", "expire_seconds": "60", "contents": "something happened"},
    "QGET": {"queue": "events", "group": "mailers"},
    "QCONSUMERS": {"queue": "mail", "count": 10},
    "QLEN": {"queue": "mail"},
    "QACK": {"queue": "events", "words": ["mailers", ID]},
    "QFLUSH": {"queue": "tickets"},
    "QPOLICY": {"queue": "tickets", "sets": True, "ttl": 3_600},
    "QPURGE": {"queue": "tickets", "states": ["queued"]},
    "QGROUP FORGET": {"queue": "events", "group": "mailers"},
    "QGROUP LIST": {"queue": "events"},
    "QGROUP RETURN": {"queue": "events", "group": "mailers", "ids": [ID]},
    "QGROUP START": {"queue": "events", "group": "mailers", "at": "NOW"},
    "QINFO": {"words": ["events"]},
    "QLPEEK": {"queue": "mail"},
    "QLPUSH": {"queue": "tickets", "event_id": "one", "contents": "to: ann"},
    "REDRIVE": {"queue": "mail", "count": 100},
    "QPEEK": {"queue": "mail", "count": 10},
    "QRPEEK": {"queue": "mail"},
    "QRPOP": {"queue": "mail", "held": 5},
    "QRPUSH": {"queue": "tickets", "event_id": "two", "contents": "to: bob"},
    "QSTATUS": {"words": ["events"]},
    "RQ.ACK": {"key": "letters", "ids": ["1601155608777-1"]},
    "RQ.INFO": {"key": "mail"},
    "RQ.INSPECT": {"key": "mail", "start": 0, "count": 10},
    "RQ.POP": {"keys": ["mail"], "count": 2, "worker": "press-1"},
    "RQ.PUSH": {"key": "letters", "elements": ["to: ann", "to: bob"]},
    "RQ.PUSHX": {"key": "letters", "elements": ["to: ann"], "ttl": 60},
    "RQ.RECOVER": {"key": "mail", "count": 10, "elapsed": 0},
    "QSCAN": {"cursor": 0, "minlen": 1},
    "QSTAT": {"queue": "mail", "full": True},
    "SCAN JOB": {"cursor": 0, "count": 10},
    "SCAN QUEUE": {"cursor": 0, "count": 10},
    **{f"SCHEDULE {verb}": {"name": "nightly"} for verb in ("DEL", "FIRE", "GET", "NEXT", "PAUSE", "RESUME")},
    "SCHEDULE LIST": {"pattern": "n*"},
    "SCHEDULE SET": {
        "name": "nightly",
        "line": "0 2 * * *",
        "zone": "Europe/Berlin",
        "queue": "reports",
        "body": "sales",
    },
    "SHOW": {"id": ID},
    "SLOTS": {"queue": "mail", "count": 10},
    "SLOWLOG GET": {"count": 10, "full": True},
    "THROTTLE": {"queue": "mail", "seconds": 30, "group": "acme"},
    "WAITJOB": {"timeout": 1000, "ids": [ID]},
    "WORKING": {"id": ID},
    "WORKER FAIL": {"id": "press-1"},
    "WORKER INFO": {"id": "press-1"},
    "WORKER LIST": {"queue": "mail"},
    "WORKER STOP": {"id": "press-1"},
    "WQ.CANCEL": {"queue": "mail", "task": "to: ann"},
    "WQ.DELETE": {"queue": "mail", "keep": True},
    "WQ.ENQUEUE": {"queue": "mail", "tasks": ["to: ann", "to: bob"], "asynchronous": True},
    "WQ.FINISH": {"process": ID, "result": "sent"},
    "WQ.LEN": {"queue": "mail"},
    "WQ.PEEK": {"queue": "mail"},
    "WQ.PROCS": {"queue": "mail"},
    "WQ.RETURN": {"process": ID, "back": True},
    "WQ.TASKS": {"queue": "mail", "start": 0, "count": 10},
    **{name: {"ids": [ID]} for name in ("ACKJOB", "CANCEL", "DELJOB", "DEQUEUE", "ENQUEUE", "FASTACK", "NACK")},
}
_STATUSES: Final = {
    "CLUSTER COUNT-FAILURE-REPORTS": 400, "CLUSTER FORGET": 400, "CONFIG REWRITE": 400, "DEBUG ERROR": 400,
    "LATENCY GRAPH": 400, "LOADJOB": 400,
}  # fmt: skip


def role_of(entry: Command) -> Role:
    """Who may run a command."""
    if Flag.ADMIN in entry.flags:
        return Role.ADMIN
    return Role.VIEWER if Flag.READ in entry.flags and entry.name not in CHANGING else Role.OPERATOR


def _path(name: str) -> str:
    return f"/api/commands/{name.replace(' ', '/')}"


def _declare(entry: Command) -> None:
    only = _ONLY.get(entry.name)

    async def act(site: Site, asked: Request) -> Reply:
        call = words(entry, asked.body, only)
        field = entry.bodies_field
        if field and not asked.visitor.sees_bodies and asked.body.get(field, "id") != "id":
            raise Problem(403, f"{asked.visitor.name} may not see the bodies of jobs; leave the field {field} out")
        value = await site.call(asked.visitor, *call)
        reply = {"reply": without_secrets(value) if entry.name == "CONFIG GET" else value}
        return await site.json(reply)

    role = role_of(entry)
    route("POST", _path(entry.name), role=role, summary=f"{entry.name}: {entry.summary}", doc=entry.manual,
          body=schema(entry, only), reply=object_of(reply=reply_schema(entry)), tag="commands",
          writes=role > Role.VIEWER and entry.name not in LOOKING, commands=(entry.name,),
          needs_bodies=entry.shows_bodies, errors=error_words(entry, only), example=EXAMPLES.get(entry.name, {}),
          example_status=_STATUSES.get(entry.name, 200), is_large=entry.is_large)(act)  # fmt: skip


def _refuse(entry: Command) -> None:
    """A command that has no meaning here is named all the same, so that whoever asks for it hears why."""
    concerns, there = "the connection that it comes on", "to the port for clients"
    if entry.name.startswith("ACL "):
        concerns, there = "the users of the port for clients, whom the admin side does not have", "there"

    async def act(site: Site, asked: Request) -> dict[str, Any]:
        raise Problem(400, f"{entry.name} concerns {concerns}; send it {there}")

    route("POST", _path(entry.name), role=role_of(entry), summary=f"{entry.name} concerns {concerns}",
          body={"type": "object"}, tag="commands", listed=False)(act)  # fmt: skip


for _entry in COMMANDS.values():
    (_refuse if _entry.is_of_connection else _declare)(_entry)


@route("POST", "/api/commands/<name>", role=Role.VIEWER, summary="No such command", body={}, tag="commands",
       listed=False)  # fmt: skip
@route("POST", "/api/commands/<name>/<subcommand>", role=Role.VIEWER, summary="No such command", body={},
       tag="commands", listed=False)  # fmt: skip
async def no_such(site: Site, asked: Request) -> dict[str, Any]:
    """Tell how commands are called."""
    name = b" ".join(asked.path.values())[:100].decode("utf-8", "backslashreplace")
    if name.upper() in COMMANDS:
        raise Problem(404, f"the name is written in capitals: {_path(name.upper())}")
    raise Problem(404, f"there is no command {name!r}; a subcommand is CONFIG/GET, and CONFIG alone is none")
