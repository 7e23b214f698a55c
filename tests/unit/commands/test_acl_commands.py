"""Categories, and what each command of the table names: a new command has to say so, or a test here fails."""

import pytest

from disqued.acl.rules import apply
from disqued.acl.user import User
from disqued.commands import catalogue, table
from disqued.commands.categories import CATEGORIES, CommandBook, categories_of, writes
from disqued.commands.permission import FOR_UNAUTHENTICATED, check_command, check_names, rights_needed
from disqued.commands.table import LONG, Flag, every_command
from disqued.commands.touched import channels_of, job_ids_of, queues_of
from disqued.commands.values import TAKER
from disqued.core.model.worker import RemoteWorker
from disqued.errors import CommandError, NoPermission, UnknownJob
from tests.cluster_fixtures import Cluster
from tests.fakes import Client, Daemon

assert catalogue.MODULES
BOOK = CommandBook()
COMMANDS = {entry.name: entry for entry in every_command()}
ID = "DI0f0c644f" + "0" * 32 + "05a0SQ"

#: What values are of which neither the type nor the kind says that they name a queue, a job or a channel.  Whoever adds
#: a command with such a value says here what it is, or gives it a kind that names (QUEUE, JOB_ID, CHANNEL).
NO_NAMES = {
    "body": "ADDJOB.body ADDJOB.key QADD.contents QLPUSH.contents QRPUSH.contents RQ.PUSH.elements RQ.PUSHX.elements "
    "ADDJOB.headers WQ.ENQUEUE.tasks WQ.CANCEL.task WQ.FINISH.result WQ.PROCS.task LOADJOB.record",
    "a name within a queue that is named": "QGET.group QGROUP_FORGET.group QGROUP_RETURN.group QGROUP_START.group "
    "QGROUP_START.at QACK.words QLPUSH.event_id QRPUSH.event_id RQ.ACK.ids ADDJOB.group THROTTLE.group",
    "worker, beside a queue": "WORKER_START.name WQ.PROCS.worker",
    "what is looked for in the names of those workers that may be seen": "WORKER_LIST.match",
    "node or address": "CLUSTER_ASK.node CLUSTER_COUNT-FAILURE-REPORTS.id CLUSTER_FORGET.id CLUSTER_MEET.ip "
    "CLUSTER_MEET.port CLUSTER_MEET.bus_port CLIENT_KILL.address CLIENT_KILL.addr CLIENT_KILL.laddr "
    "CLIENT_MAINT_NOTIFICATIONS.endpoint",
    "user, password or rule": "AUTH.password_or_user AUTH.password HELLO.auth ACL_SETUSER.name ACL_SETUSER.rules "
    "ACL_DELUSER.names ACL_GETUSER.name ACL_CAT.category ACL_DRYRUN.name ACL_DRYRUN.command ACL_DRYRUN.arguments "
    "CLIENT_KILL.user",
    "a command for those who may read all queues, and run it where it changes something":
    "CLUSTER_ASK.command CLUSTER_ASK.arguments",
    "setting, section, command or event": "CONFIG_GET.pattern CONFIG_SET.name CONFIG_SET.value INFO.section "
    "COMMAND_DOCS.names COMMAND_INFO.names LATENCY_GRAPH.event LATENCY_HISTORY.event LATENCY_RESET.events",
    "said by the client of itself, or said back to it": "PING.message ECHO.message QUIT.ignored DEBUG_ERROR.text "
    "CLIENT_SETNAME.name CLIENT_SETINFO.text HELLO.name PAUSE.reason NACK.reason",
    "what came of a job, and how far it is": "ACKJOB.result WORKING.progress",
    "what a schedule says, beside its queue, or names of schedules, of which those are shown whose queue may be seen":
    "SCHEDULE_SET.line SCHEDULE_SET.zone SCHEDULE_SET.body SCHEDULE_SET.headers SCHEDULE_SET.group "
    "SCHEDULE_LIST.pattern",
}  # fmt: skip
EXPLAINED = {name for names in NO_NAMES.values() for name in names.split()}


def user(*rules: str, name: bytes = b"ann") -> User:
    return apply(User(name), [rule.encode() for rule in rules], BOOK)


# Names.


def test_every_text_of_every_command_is_a_name_or_is_explained():
    found = {
        f"{entry.name}.{field.name}".replace(" ", "_")
        for entry in COMMANDS.values()
        for field in entry.fields
        if field.arg.kind.name == "string" and not field.arg.kind.names and field.arg.style != "flag"
    }
    assert found == EXPLAINED


@pytest.mark.parametrize("name", ["QINFO", "QSTATUS", "QNOTIFY", "QREGISTER"])
def test_commands_whose_words_are_of_several_kinds_tell_queues_apart(name):
    words = {
        "QINFO": [b"one", b"two", b"GROUPS", b"group"],
        "QSTATUS": [b"one", b"two", b"groups", b"group"],
        "QNOTIFY": [b"group", b"5", b"one", b"two"],
        "QREGISTER": [b"GROUP", b"group", b"one", b"two"],
    }[name]
    call = COMMANDS[name].parse([name.encode(), *words])
    assert queues_of(COMMANDS[name], call) == [b"one", b"two"]


def test_a_command_whose_words_are_of_several_kinds_says_so():
    """A rest of queues called words holds other things as well: its class has to tell them apart."""
    for entry in COMMANDS.values():
        if any(field.name == "words" and field.arg.kind.names for field in entry.fields):
            assert hasattr(entry.make, "queues_named"), entry.name


@pytest.mark.parametrize(
    ("line", "queues"),
    [
        ("ADDJOB q body 0 KEY other", ["q"]),
        ("GETJOB NOHANG FROM a b", ["a", "b"]),
        ("RQ.POP COUNT 2 KEYS a b", ["a", "b"]),
        ("WQ.DEQUEUE a COUNT 1 b", ["a", "b"]),
        ("JSCAN 0", []),
        ("JSCAN 0 QUEUE q", ["q"]),
        ("WQ.PROCS QUEUE q", ["q"]),
        ("WORKER LIST QUEUE q", ["q"]),
        ("QREGISTER a b", ["a", "b"]),
        ("QNOTIFY 5", []),
        ("QINFO", []),
    ],
)
def test_queues_are_found_where_they_stand(line, queues):
    words = [word.encode() for word in line.split()]
    entry = table.find(words)
    assert queues_of(entry, table.parse(entry, words)) == [name.encode() for name in queues]


def test_jobs_are_found_where_they_stand():
    other = ID.replace("DI0", "DI1")
    for line in (f"ACKJOB {ID} {other}", f"WQ.RETURN {ID}:3 BACK {other}"):
        words = [word.encode() for word in line.split()]
        entry = table.find(words)
        assert job_ids_of(entry, table.parse(entry, words)) == [ID.encode(), other.encode()]
    words = [b"ACKJOB", *[ID.encode()] * (LONG + 1)]
    assert job_ids_of(COMMANDS["ACKJOB"], COMMANDS["ACKJOB"].parse(words)) == words[1:]


def test_channels_are_found_where_they_stand():
    for name, is_pattern in (("SUBSCRIBE", False), ("PSUBSCRIBE", True)):
        call = COMMANDS[name].parse([name.encode(), b"a", b"b"])
        assert channels_of(COMMANDS[name], call, patterns=is_pattern) == [b"a", b"b"]
        assert channels_of(COMMANDS[name], call, patterns=not is_pattern) == []


# Rights.


#: What a user needs of a queue: %R~ to see what it holds, %W~ to change that, both to be given its jobs.
READING = (
    "JSCAN QCONSUMERS QGROUP_LIST QINFO QLEN QLPEEK QNOTIFY QPEEK QRPEEK QSTAT QSTATUS RQ.INFO RQ.INSPECT SCAN_JOB "
    "SCHEDULE_GET SCHEDULE_NEXT SHOW SLOTS "
    "WAITJOB WORKER_INFO WORKER_LIST WQ.LEN WQ.PEEK WQ.PROCS WQ.REQUEST WQ.TASKS"
)
WRITING = (
    "ACKJOB ADDJOB CANCEL DELJOB DEQUEUE ENQUEUE FASTACK NACK PAUSE QACK QADD QFLUSH QGROUP_FORGET QGROUP_RETURN "
    "QGROUP_START QLPUSH QPOLICY QPURGE QREGISTER QRPUSH REDRIVE RQ.ACK RQ.PUSH RQ.PUSHX SCHEDULE_DEL "
    "SCHEDULE_FIRE SCHEDULE_PAUSE SCHEDULE_RESUME SCHEDULE_SET THROTTLE WORKER_FAIL WORKER_KEEPALIVE "
    "WORKER_START WORKER_STOP WORKING WQ.CANCEL WQ.DELETE WQ.ENQUEUE WQ.FINISH WQ.RETURN WQ.UNWORK WQ.WORK"
)
BOTH = "GETJOB QGET QRPOP RQ.POP RQ.RECOVER WQ.DEQUEUE"


def test_a_command_reads_a_queue_or_changes_it_or_does_both():
    found: dict[tuple[bool, bool], set[str]] = {}
    for entry in COMMANDS.values():
        if any(field.arg.kind.names in ("queue", "job", "worker", "schedule") for field in entry.fields):
            found.setdefault(rights_needed(entry), set()).add(entry.name.replace(" ", "_"))
    assert found == {
        (True, False): set(READING.split()), (False, True): set(WRITING.split()), (True, True): set(BOTH.split()),
    }  # fmt: skip


def test_a_producer_may_write_and_not_read():
    daemon, producer = Daemon(), user("+@all", "%W~mail")
    daemon.node.begin()
    for line, is_allowed in (("ADDJOB mail x 0", True), ("QLEN mail", False), ("GETJOB NOHANG FROM mail", False)):
        words = [word.encode() for word in line.split()]
        entry = table.find(words)
        if is_allowed:
            check_names(producer, entry, table.parse(entry, words), daemon.node)
        else:
            with pytest.raises(NoPermission):
                check_names(producer, entry, table.parse(entry, words), daemon.node)


def test_a_client_that_has_not_logged_in_may_do_that_and_leave():
    assert set(FOR_UNAUTHENTICATED) == {"AUTH", "HELLO", "QUIT", "RESET"}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_may_be_withheld_but_for_those_that_let_a_client_in(name):
    nobody = user("on")
    if name in FOR_UNAUTHENTICATED:
        check_command(nobody, COMMANDS[name])
        return
    with pytest.raises(NoPermission, match="has no permissions to run the"):
        check_command(nobody, COMMANDS[name])
    check_command(user(f"+{name.lower().replace(' ', '|')}"), COMMANDS[name])


def _line_of(name: str, queue: str) -> list[bytes] | None:
    """A line of a command with the queue in every place that queues have, and something in the others; None = none."""
    entry, words = COMMANDS[name], name.split()
    if not any(field.arg.kind.names == "queue" for field in entry.fields):
        return None
    some = {"integer": "1", "double": "1", "string": "x"}
    special = {
        "QNOTIFY": ["group", "1", queue],
        "PAUSE": [queue, "state"],
        "RQ.INSPECT": [queue, "0", "1"],
        "RQ.RECOVER": [queue, "1", "1"],
        "QGROUP START": [queue, "group", "NOW"],
        "QGROUP RETURN": [queue, "group", ID],
    }
    if name in special:
        return [word.encode() for word in (*words, *special[name])]
    for field in entry.fields:
        arg = field.arg
        value = queue if arg.kind.names == "queue" else some.get(arg.kind.name, "x")
        if arg.style == "positional":
            words.append(value)
        elif arg.style == "rest" and (arg.minimum or arg.kind.names == "queue"):
            words += [arg.keyword.decode(), value] if arg.keyword else [value]
        elif arg.style == "option" and arg.kind.names == "queue":
            words += [arg.keyword.decode(), value]
    return [word.encode() for word in words]


NAMING = [name for name in sorted(COMMANDS) if _line_of(name, "q") is not None]


@pytest.mark.parametrize("name", NAMING)
def test_every_command_that_names_a_queue_is_held_to_the_users_queues(name):
    node = Daemon().node
    node.begin()
    for queue, is_allowed in (("mine", True), ("theirs", False)):
        words = _line_of(name, queue)
        assert words is not None
        entry = table.find(words)
        call = table.parse(entry, words)
        if is_allowed:
            check_names(user("+@all", "~mine"), entry, call, node)
        else:
            with pytest.raises(NoPermission, match="'theirs' queue"):
                check_names(user("+@all", "~mine"), entry, call, node)


def test_a_job_is_its_queues():
    daemon = Daemon()
    client = Client(daemon)
    theirs = client.says("ADDJOB", "theirs", "body", "0")
    mine = client.says("ADDJOB", "mine", "body", "0")
    ann = user("+@all", "~mine")
    for name in (
        "ACKJOB",
        "FASTACK",
        "DELJOB",
        "NACK",
        "ENQUEUE",
        "DEQUEUE",
        "SHOW",
        "WORKING",
        "CANCEL",
        "WQ.FINISH",
        "WQ.RETURN",
    ):
        entry = COMMANDS[name]
        check_names(ann, entry, entry.parse([name.encode(), mine]), daemon.node)
        with pytest.raises(NoPermission, match=f"the queue of the job '{theirs.decode()}'"):
            check_names(ann, entry, entry.parse([name.encode(), theirs]), daemon.node)


def test_every_command_on_jobs_that_names_no_queue_is_among_those_tested():
    on_jobs = {
        entry.name
        for entry in COMMANDS.values()
        if any(field.arg.kind.names == "job" for field in entry.fields)
        and not any(field.arg.kind.names == "queue" for field in entry.fields)
    }
    assert on_jobs == {
        "ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE", "SHOW", "WORKING", "WQ.FINISH", "WQ.RETURN",
        "CANCEL", "WAITJOB",
    }  # fmt: skip


def test_a_schedule_is_its_queue():
    daemon = Daemon()
    client = Client(daemon)
    for name in ("mine", "theirs"):
        client.says("SCHEDULE", "SET", name, "EVERY", "60", "QUEUE", name, "BODY", "body")
    ann = user("+@all", "~mine")
    for line in ("GET", "DEL", "PAUSE", "RESUME", "FIRE", "NEXT", "SET"):
        words = [b"SCHEDULE", line.encode()]
        more = [b"EVERY", b"5", b"QUEUE", b"mine", b"BODY", b"x"] if line == "SET" else []
        entry = table.find([*words, b"mine"])
        for name in (b"mine", b"new"):
            check_names(ann, entry, table.parse(entry, [*words, name, *more]), daemon.node)
        with pytest.raises(NoPermission, match="the queue of the schedule 'theirs'"):
            check_names(ann, entry, table.parse(entry, [*words, b"theirs", *more]), daemon.node)
    entry = table.find([b"SCHEDULE", b"SET", b"x"])
    words = [b"SCHEDULE", b"SET", b"new", b"EVERY", b"5", b"QUEUE", b"theirs", b"BODY", b"x"]
    with pytest.raises(NoPermission, match="the 'theirs' queue"):
        check_names(ann, entry, table.parse(entry, words), daemon.node)


def test_a_refusal_names_no_queue_that_the_user_has_not_named():
    daemon = Daemon()
    job_id = Client(daemon).says("ADDJOB", "patient:ann-example", "body", "0")
    ann = user("+@all", "~mine")
    for name in ("ACKJOB", "SHOW"):
        with pytest.raises(NoPermission) as caught:
            check_names(ann, COMMANDS[name], COMMANDS[name].parse([name.encode(), job_id]), daemon.node)
        assert caught.value.text == (f"User ann has no permissions to access the queue of the job '{job_id.decode()}'")
        assert caught.value.what == b"patient:ann-example", "ACL LOG names it"


def test_a_worker_is_its_queues():
    daemon = Daemon()
    theirs, mine = Client(daemon), Client(daemon)
    theirs.says("WORKER", "START", "ID", "press")
    theirs.says("WQ.WORK", "theirs")
    mine.says("WORKER", "START", "ID", "mill")
    mine.says("WQ.WORK", "mine")
    # What it was given counts as well as what it said that it works on.
    theirs.says("ADDJOB", "theirs", "body", "0")
    theirs.says("WORKER", "START", "ID", "holder")
    theirs.says("GETJOB", "WORKER", "holder", "FROM", "theirs")
    ann = user("+@all", "~mine")
    for line in ("WORKER STOP", "WORKER FAIL", "WORKER INFO", "WORKER KEEPALIVE", "WORKER START ID"):
        words = [word.encode() for word in line.split()]
        for worker, is_allowed in ((b"mill", True), (b"new", True), (b"press", False), (b"holder", False)):
            entry = table.find(words)
            call = table.parse(entry, [*words, worker])
            if is_allowed:
                check_names(ann, entry, call, daemon.node)
            else:
                with pytest.raises(NoPermission) as caught:
                    check_names(ann, entry, call, daemon.node)
                assert caught.value.text == (
                    f"User ann has no permissions to access a queue of the worker '{worker.decode()}'"
                )
                assert caught.value.what == b"theirs", "ACL LOG names it"
    taking = ("GETJOB {} FROM mine", "RQ.POP {} mine", "RQ.RECOVER mine {}", "QGET mine group {}", "QRPOP mine {}")
    for line in taking:
        entry = COMMANDS[line.split()[0]]
        for worker, is_allowed in ((b"mill", True), (b"new", True), (b"press", False), (b"holder", False)):
            call = entry.parse(line.format(f"WORKER {worker.decode()}").encode().split())
            if is_allowed:
                check_names(ann, entry, call, daemon.node)
            else:
                with pytest.raises(NoPermission, match="a queue of the worker"):
                    check_names(ann, entry, call, daemon.node)
    assert {line.split()[0] for line in taking} == {
        entry.name for entry in COMMANDS.values() if any(field.arg.kind is TAKER for field in entry.fields)
    }
    assert theirs.says("WORKER", "LIST") == [b"press", b"mill", b"holder"]
    assert Client(daemon, user=ann).says("WORKER", "LIST", "CLUSTER") == [b"mill"]


def test_a_worker_is_its_queues_for_the_connection_that_works_as_it_too():
    daemon = Daemon()
    ann, other = Client(daemon, user=user("+@all", "~mine")), Client(daemon)
    ann.says("WORKER", "START", "ID", "shared")
    entry = table.find([b"WORKER", b"STOP"])
    call = table.parse(entry, [b"WORKER", b"STOP"])
    check_names(ann.user, entry, call, daemon.node, ann)
    other.says("WORKER", "KEEPALIVE", "shared")
    other.says("WQ.WORK", "theirs")
    with pytest.raises(NoPermission, match="a queue of the worker 'shared'"):
        check_names(ann.user, entry, call, daemon.node, ann)
    check_names(ann.user, entry, call, daemon.node, Client(daemon))


@pytest.mark.parametrize("line", ["WORKER STOP", "WORKER FAIL", "WORKER KEEPALIVE", "WORKER START ID"])
def test_a_worker_of_another_node_is_not_taken_from_there_unseen(line: str) -> None:
    cluster = Cluster(2)
    home, here = cluster
    home("WORKER", "START", "ID", "press", client="theirs")
    home("WQ.WORK", "theirs", client="theirs")
    words = [*line.encode().split(), b"press"]
    entry = table.find(words)
    call = table.parse(entry, words)
    check_names(user("+@all", "allkeys"), entry, call, here.node)
    with pytest.raises(NoPermission, match="the worker 'press' here: ask the node on which it lives"):
        check_names(user("+@all", "~mine"), entry, call, here.node)
    # What of it is known here is all that anybody can get while its node is away.
    cluster.cut(home, here)
    check_names(user("+@all", "~mine"), entry, call, here.node)


@pytest.mark.parametrize("words", ["CLUSTER LEAVING yes", "cluster leaving no", "CLUSTER LEAVING", "CLUSTER INFO"])
def test_what_another_node_is_asked_to_change_needs_the_right_to_run_that_here(words: str) -> None:
    daemon = Daemon()
    entry = COMMANDS["CLUSTER ASK"]
    call = table.parse(entry, [b"CLUSTER", b"ASK", daemon.node.id, *words.encode().split()])
    for ann in (user("+@all", "allkeys"), user("+cluster|ask", "+cluster|leaving", "allkeys")):
        assert check_names(ann, entry, call, daemon.node) is call
    for ann in (user("+cluster|ask", "allkeys"), user("+@all", "-cluster|leaving", "allkeys")):
        if words == "CLUSTER INFO":
            assert check_names(ann, entry, call, daemon.node) is call
            continue
        with pytest.raises(NoPermission, match=r"no permissions to run the 'cluster\|leaving' command") as caught:
            check_names(ann, entry, call, daemon.node)
        assert (caught.value.reason, caught.value.what) == (b"command", b"cluster|leaving")


@pytest.mark.parametrize(("name", "options"), [("enqueue", ()), ("nack", (b"DEAD",))])
def test_jobs_of_another_node_are_queued_and_buried_by_those_who_may_do_so_here(
    name: str, options: tuple[bytes, ...]
) -> None:
    daemon = Daemon()
    entry = COMMANDS["CLUSTER ASK"]
    call = table.parse(entry, [b"CLUSTER", b"ASK", daemon.node.id, name.encode(), ID.encode(), *options])
    assert check_names(user("+cluster|ask", f"+{name}", "allkeys"), entry, call, daemon.node) is call
    with pytest.raises(NoPermission, match=f"no permissions to run the '{name}' command"):
        check_names(user("+@all", f"-{name}", "allkeys"), entry, call, daemon.node)


def test_jobs_that_are_unknown_here_are_passed_over_for_who_may_not_touch_all_queues():
    daemon = Daemon()
    mine, ann = Client(daemon).says("ADDJOB", "mine", "body", "0"), user("+@all", "~mine")
    entry = COMMANDS["ACKJOB"]
    call = check_names(ann, entry, entry.parse([b"ACKJOB", ID.encode(), mine]), daemon.node)
    assert call.ids == [mine]
    many = entry.parse([b"ACKJOB", *[ID.encode()] * (LONG + 1), mine])
    assert check_names(ann, entry, many, daemon.node).words == [b"ACKJOB", mine]
    assert entry.parse([b"ACKJOB", ID.encode()]).ids == [ID.encode()]
    with pytest.raises(UnknownJob):
        check_names(ann, COMMANDS["WQ.FINISH"], COMMANDS["WQ.FINISH"].parse([b"WQ.FINISH", ID.encode()]), daemon.node)
    everyone = user("+@all", "~*")
    assert check_names(everyone, entry, entry.parse([b"ACKJOB", ID.encode()]), daemon.node).ids == [ID.encode()]


def test_a_dummy_ack_is_no_job_of_anybodys():
    daemon = Daemon()
    job_id = Client(daemon).says("ADDJOB", "", "body", "0")
    job, entry = daemon.node.state.jobs.get(job_id), COMMANDS["ACKJOB"]
    ann = user("+@all", "~")
    assert check_names(ann, entry, entry.parse([b"ACKJOB", job_id]), daemon.node).ids == [job_id]
    job.holders = frozenset()
    assert check_names(ann, entry, entry.parse([b"ACKJOB", job_id]), daemon.node).ids == []


def test_to_listen_no_more_is_for_everybody():
    node = Daemon().node
    for name in ("UNSUBSCRIBE", "PUNSUBSCRIBE"):
        check_names(user("+@all"), COMMANDS[name], COMMANDS[name].parse([name.encode(), b"any"]), node)
    with pytest.raises(NoPermission, match="'any' channel"):
        check_names(user("+@all"), COMMANDS["SUBSCRIBE"], COMMANDS["SUBSCRIBE"].parse([b"SUBSCRIBE", b"any"]), node)


def test_rights_on_queues_are_none_on_channels_and_patterns_are_held_to_them_too():
    node = Daemon().node
    node.begin()
    queues, channels = user("+@all", "~*", "&mine"), user("+@all", "~mine", "&*")
    for name, kind in (("SUBSCRIBE", "channel"), ("PSUBSCRIBE", "channel"), ("QLEN", "queue")):
        entry = COMMANDS[name]
        refused, allowed = (channels, queues) if kind == "queue" else (queues, channels)
        for target in (b"mine", b"theirs"):
            check_names(allowed, entry, entry.parse([name.encode(), target]), node)
        check_names(refused, entry, entry.parse([name.encode(), b"mine"]), node)
        with pytest.raises(NoPermission, match=f"'theirs' {kind}"):
            check_names(refused, entry, entry.parse([name.encode(), b"theirs"]), node)


def test_a_worker_of_another_node_is_the_queues_of_the_jobs_that_it_has():
    daemon = Daemon()
    job_id = Client(daemon).says("ADDJOB", "theirs", "body", "0")
    home = daemon.node.homes.known[b"away"] = RemoteWorker(b"away", 1, b"f" * 40, 0)
    entry, ann = COMMANDS["WORKER STOP"], user("+@all", "~mine")
    call = table.parse(entry, [b"WORKER", b"STOP", b"away"])
    check_names(ann, entry, call, daemon.node)
    home.jobs[daemon.node.state.jobs.get(job_id)] = None
    with pytest.raises(NoPermission, match="a queue of the worker 'away'"):
        check_names(ann, entry, call, daemon.node)


def test_an_acknowledgement_of_an_unknown_job_leaves_no_trace_for_who_may_not_touch_all_queues():
    """A dummy ack would end the job on the nodes that do know it."""
    daemon, ann = Daemon(), user("+@all", "~mine")
    entry = COMMANDS["ACKJOB"]
    daemon.node.begin()
    call = check_names(ann, entry, entry.parse([b"ACKJOB", ID.encode()]), daemon.node)
    assert daemon.node.command(Client(daemon), call) == 0
    assert daemon.node.state.jobs.get(ID.encode()) is None


# What walks over everything.


def test_walks_show_no_queue_that_the_user_may_not_read():
    daemon = Daemon()
    all_seeing, ann = Client(daemon), Client(daemon, user=user("+@all", "~mine:*", "%W~added"))
    for queue in ("secret", "mine:1", "added"):
        job_id = all_seeing.says("ADDJOB", queue, f"body of {queue}", "0")
        all_seeing.says("GETJOB", "FROM", queue)
        all_seeing.says("NACK", job_id)
        all_seeing.says("ADDJOB", queue, f"another of {queue}", "0")
        all_seeing.says("GETJOB", "FROM", queue)
    all_seeing.says("WORKER", "START", "ID", "w-secret")
    all_seeing.says("WQ.WORK", "secret", "mine:1")
    for line in (
        "QSCAN", "QSCAN 0 BUSYLOOP", "SCAN QUEUE 0", "JSCAN 0 REPLY all", "SCAN JOB 0 REPLY all", "WQ.QUEUES",
        "WQ.PROCS", "QINFO", "QSTATUS", "WQ.PROCS WORKER w-secret", "WORKER LIST",
    ):  # fmt: skip
        everything, shown = repr(all_seeing.says(*line.split())), repr(ann.says(*line.split()))
        assert "secret" not in shown, line
        assert "added" not in shown, line
        if "WORKER" not in line:
            assert "secret" in everything, line
            assert "mine:1" in shown, line


# Categories.


def test_a_unique_task_tells_nothing_of_queues_that_the_user_may_not_see():
    daemon = Daemon()
    daemon.node.tasks.unique_anywhere = True
    root, ann = Client(daemon), Client(daemon, user=user("+@all", "~mine"))
    root.says("WQ.ENQUEUE", "theirs", "UNIQUE", "TASKS", "the body")
    assert root.is_refused("WQ.ENQUEUE", "mine", "UNIQUE", "TASKS", "the body").startswith(b"DUPLICATE")
    assert len(ann.says("WQ.ENQUEUE", "mine", "UNIQUE", "TASKS", "the body")) == 1
    assert ann.is_refused("WQ.ENQUEUE", "mine", "UNIQUE", "TASKS", "the body").startswith(b"DUPLICATE")
    everything = Client(daemon, user=user("+@all", "~*"))
    assert everything.is_refused("WQ.ENQUEUE", "more", "UNIQUE", "TASKS", "the body").startswith(b"DUPLICATE")


def test_the_categories_that_are_shown_are_those_that_commands_have():
    assert {category for entry in COMMANDS.values() for category in categories_of(entry)} == set(CATEGORIES)
    assert all(BOOK.of_category(category) for category in CATEGORIES)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_fast_or_slow_and_what_is_for_admins_is_dangerous(name):
    categories = categories_of(COMMANDS[name])
    assert ("fast" in categories) != ("slow" in categories)
    assert not ("read" in categories and "write" in categories)
    assert "dangerous" in categories or "admin" not in categories


def test_whatever_changes_jobs_or_queues_is_in_write():
    for entry in COMMANDS.values():
        assert writes(entry) or Flag.WRITE not in entry.flags
        if entry.group in ("jobs", "queues", "lists", "logs") and writes(entry):
            assert "write" in categories_of(entry), entry.name


@pytest.mark.parametrize(
    ("name", "categories"),
    [
        ("ADDJOB", "job write fast"),
        ("GETJOB", "job write fast blocking"),
        ("QLEN", "queue read fast"),
        ("PAUSE", "queue write fast"),
        ("QFLUSH", "log write slow dangerous"),
        ("SUBSCRIBE", "pubsub fast"),
        ("CLIENT SETNAME", "connection slow"),
        ("CLIENT KILL", "connection slow admin dangerous"),
        ("CLIENT UNBLOCK", "connection slow admin dangerous"),
        ("CONFIG SET", "slow admin dangerous"),
        ("SLOWLOG GET", "slow admin dangerous"),
        ("INFO", "slow dangerous"),
        ("ACL SETUSER", "slow admin dangerous"),
        ("ACL WHOAMI", "slow"),
        ("CLUSTER MEET", "cluster slow admin dangerous"),
        ("PING", "connection fast"),
    ],
)
def test_categories_are_those_that_redis_gives_where_it_has_the_command(name, categories):
    assert categories_of(COMMANDS[name]) == set(categories.split())


ADMIN = (
    "ACL_DELUSER ACL_DRYRUN ACL_GETUSER ACL_LIST ACL_LOAD ACL_LOG ACL_SAVE ACL_SETUSER ACL_USERS BGREWRITEAOF "
    "CLIENT_KILL CLIENT_LIST CLIENT_PAUSE CLIENT_UNBLOCK "
    "CLUSTER_ASK CLUSTER_COUNT-FAILURE-REPORTS CLUSTER_FORGET CLUSTER_INFO CLUSTER_LEAVING "
    "CLUSTER_MEET CLUSTER_MYID CLUSTER_NODES CLUSTER_RESET CLUSTER_SAVECONFIG CONFIG_GET CONFIG_RESETSTAT "
    "CONFIG_REWRITE CONFIG_SET DEBUG_ERROR DEBUG_FLUSHALL DEBUG_SLEEP DEBUG_STRUCTSIZE LATENCY_DOCTOR LATENCY_GRAPH "
    "LATENCY_HISTORY LATENCY_LATEST LATENCY_RESET MONITOR SHUTDOWN SLOWLOG_GET SLOWLOG_LEN SLOWLOG_RESET"
)


@pytest.mark.parametrize(
    ("category", "commands"),
    [
        ("admin", ADMIN),
        ("dangerous", f"{ADMIN} INFO QFLUSH QPURGE WORKER_FAIL WQ.DELETE"),
        ("blocking", "GETJOB QGET QNOTIFY RQ.POP WQ.DEQUEUE"),
        ("pubsub", "PSUBSCRIBE PUNSUBSCRIBE SUBSCRIBE UNSUBSCRIBE"),
    ],
)
def test_what_a_rule_withdraws_with_a_category_is_all_of_these_and_no_more(category, commands):
    limited = user("+@all", f"-@{category}")
    withdrawn = {name.replace(" ", "_") for name in COMMANDS if not limited.may_run(name)}
    assert withdrawn == set(commands.split())


def test_a_name_stands_for_all_its_subcommands():
    assert BOOK.called("config") == {"CONFIG GET", "CONFIG SET", "CONFIG REWRITE", "CONFIG RESETSTAT"}
    assert BOOK.called("config|get") == {"CONFIG GET"}
    assert BOOK.called("command") >= {"COMMAND", "COMMAND DOCS"}
    assert BOOK.called("config get") is None
    assert BOOK.every() == set(COMMANDS)


def test_the_error_is_noperm():
    with pytest.raises(CommandError) as caught:
        check_command(user("on"), COMMANDS["CONFIG GET"])
    assert caught.value.line == b"NOPERM User ann has no permissions to run the 'config|get' command"


def test_jobs_whose_queue_is_not_known_here_are_unknown_to_a_user_of_some_queues():
    daemon = Daemon()
    mine = Client(daemon).says("ADDJOB", "mine", "body", "0", "RESULT", "100")
    Client(daemon).says("ACKJOB", mine, "RESULT", "done")
    other = ID.encode()
    ann = user("+@all", "~mine")
    for line, reply in (
        ([b"WAITJOB", b"0", other, mine], [[other, b"unknown", None], [mine, b"acked", b"done"]]),
        ([b"CANCEL", other, mine], [b"unknown", b"done"]),
    ):
        entry = COMMANDS[line[0].decode()]
        call = check_names(ann, entry, entry.parse(line), daemon.node)
        daemon.node.begin()
        found = call.run(daemon.node, "ann")
        assert [row[:3] if isinstance(row, list) else row for row in found] == reply
