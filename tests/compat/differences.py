"""Every difference between our replies and the recorded ones of Disque 1.0-rc1, with its reason.

A difference says to which commands it applies and how it changes the recorded reply.  The reply that is expected of
us is the recorded one after all the changes that apply to its command; nothing else is accepted.  So a difference
that nobody listed fails the test of its command, and so does one that is listed and gone.

docs/compat.md lists the same keys.
"""

from collections.abc import Callable, Iterable

import attrs

from tests.compat.playing import OUT_OF_QUEUE, VARIES, Exchange
from tests.compat.replies import Reply, array, bulk, change_fields, fields, walk

Change = Callable[[Reply], Reply]


@attrs.frozen
class Difference:
    """One way in which our replies differ, wherever it shows."""

    key: str  #: as docs/compat.md names it
    reason: str
    commands: tuple[tuple[str, ...], ...]  #: names, or whole commands with their words; empty: any command
    change: Change  #: makes the expected reply of the recorded one

    def applies_to(self, exchange: Exchange) -> bool:
        """Tell whether a reply has to be changed."""
        return not self.commands or exchange.command in self.commands or exchange.recorded.args in self.commands


def expected(exchange: Exchange, differences: Iterable[Difference]) -> Reply:
    """Say what our node has to answer."""
    reply = exchange.theirs()
    for difference in differences:
        if difference.applies_to(exchange):
            reply = difference.change(reply)
    return reply


# Changes.


def _longer_ids(reply: Reply) -> Reply:
    def change(part: Reply) -> Reply:
        is_id = part.kind == "$" and (part.text or b"").startswith(b"<id")
        return attrs.evolve(part, length=48) if is_id and part.length == 40 else part

    return walk(reply, change)


def _awake_on_time(reply: Reply) -> Reply:
    early, exact = bulk(b"500 ms before the requeue"), bulk(b"0 ms before the requeue")
    return walk(reply, lambda part: exact if part == early else part)


def _with_phase(reply: Reply) -> Reply:
    """Add where a job is, which the recording tells but of one that is out of its queue and not delayed."""
    phases = {b"queued": b"ready", b"acked": b"done", b"active": OUT_OF_QUEUE}

    def change(part: Reply) -> Reply:
        known = fields(part) if part.kind == "*" else {}
        if b"nodes-confirmed" not in known:
            return part
        state = known[b"state"].text or b""
        phase = b"delayed" if known[b"delay"].text != b"0" else phases[state]
        return array(*part.items, bulk(b"phase"), bulk(phase))

    return walk(reply, change)


def _oldest_queue_first(reply: Reply) -> Reply:
    """Replace the one order of the two queues of that case by the other."""
    s1, s2 = bulk(b"s1"), bulk(b"s2")
    if reply.kind != "*" or s2 not in reply.items[1].items:
        return reply
    cursor, names = reply.items
    return array(cursor, array(s1, s2)) if s1 in names.items else array(cursor, array(s1))


def _with_rows(*rows: tuple[bytes, int, bytes]) -> Change:
    """Add commands to COMMAND: their names, arities and flags; COMMAND COUNT counts them."""
    added = tuple(_row(*row) for row in rows)

    def change(reply: Reply) -> Reply:
        if reply.kind == ":":
            return _number(int(reply.text or b"") + len(added))
        return array(*sorted((*reply.items, *added), key=bytes))

    return change


def _other_row(name: bytes, arity: int, flags: bytes) -> Change:
    def change(reply: Reply) -> Reply:
        rows = (_row(name, arity, flags) if row.items[0].text == name else row for row in reply.items)
        return array(*sorted(rows, key=bytes))

    return change


def _row(name: bytes, arity: int, flags: bytes) -> Reply:
    words = array(*(Reply("+", word) for word in flags.split()))
    return array(bulk(name), _number(arity), words, *[_number(0)] * 3)


def _number(value: int) -> Reply:
    return Reply(":", b"%d" % value)


def _setting(name: bytes, value: bytes) -> Change:
    return lambda reply: change_fields(reply, {name: lambda _: bulk(value)})


def _with_settings(more: dict[bytes, bytes]) -> Change:
    def change(reply: Reply) -> Reply:
        if len(reply.items) <= 2:  # CONFIG GET of one name
            return reply
        pairs = [*zip(reply.items[::2], reply.items[1::2], strict=True)]
        pairs += ((bulk(name), bulk(value)) for name, value in more.items())
        return array(*(part for pair in sorted(pairs, key=lambda pair: pair[0].text or b"") for part in pair))

    return change


def _with_fields(more: dict[bytes, tuple[bytes, ...]]) -> Change:
    """Add lines to INFO, each list of them after the line that begins with its key."""

    def change(reply: Reply) -> Reply:
        lines: list[Reply] = []
        for line in reply.items:
            lines.append(line)
            lines += map(bulk, more.get((line.text or b"").partition(b":")[0], ()))
        return array(*lines)

    return change


def _with_end(begin: bytes, end: bytes) -> Change:
    """Add an end to the error that begins so."""

    def change(reply: Reply) -> Reply:
        text = reply.text or b""
        return Reply("-", text + end) if reply.kind == "-" and text.startswith(begin) else reply

    return change


def _with_ends(ends: dict[bytes, bytes]) -> Change:
    """Add an end to each of the errors that begin so."""

    def change(reply: Reply) -> Reply:
        for begin, end in ends.items():
            if (reply.text or b"").startswith(begin):
                return _with_end(begin, end)(reply)
        return reply

    return change


def _with_lines(*more: bytes) -> Change:
    """Add lines to the end of a text."""
    return lambda reply: bulk((reply.text or b"") + b"".join(line + b"\r\n" for line in more))


# The table.

_COMMANDS = (("COMMAND",), ("COMMAND", "COUNT"))
_TABLE = (("COMMAND",),)
_SETTINGS = (("CONFIG", "GET"),)
_GETJOB_OPTIONS = b"NOHANG, WITHCOUNTERS, WITHHEADERS, TIMEOUT, COUNT, ORDERED, WORKER or FROM"
_WITH_WHAT_IS_ALLOWED = "An error says what is allowed; what Disque says stands before it, byte for byte."

DIFFERENCES = (
    Difference(
        "job-ids",
        "Job ids are those of the Disque README: 48 bytes, each with 112 random bits of its own behind 16 that sixteen "
        "share.",
        (),
        _longer_ids,
    ),
    Difference(
        "next-awake-within",
        "Disque wakes half a second before a requeue to announce it, and reports that moment; a lone node announces "
        "nothing and reports the requeue itself.",
        (("SHOW",), ("JSCAN",)),
        _awake_on_time,
    ),
    Difference(
        "show-phase",
        "Where a job is: its state does not tell whether a consumer has it, or its delay is not over.",
        (("SHOW",), ("JSCAN",)),
        _with_phase,
    ),
    Difference(
        "scan-order",
        "Queues are walked in the order in which they came into being, Disque's in the order of its hash table.",
        (("QSCAN",),),
        _oldest_queue_first,
    ),
    Difference(
        "more-commands",
        "SCAN is the README's name of JSCAN and QSCAN; Redis clients send SELECT, ECHO and ROLE; QUIT is a command "
        "like any other.",
        _COMMANDS,
        _with_rows(
            (b"echo", 2, b"readonly fast"),
            (b"quit", -1, b"readonly loading fast"),
            (b"role", 1, b"readonly fast"),
            (b"scan", -2, b"readonly"),
            (b"select", 2, b"readonly loading fast"),
        ),
    ),
    Difference(
        "worker-commands",
        "Workers, their tasks and the events that tell of them, which Disque did not have.",
        _COMMANDS,
        _with_rows(
            (b"psubscribe", -2, b"readonly loading fast"),
            (b"punsubscribe", -1, b"readonly loading fast"),
            (b"reset", 1, b"readonly loading fast"),
            (b"subscribe", -2, b"readonly loading fast"),
            (b"unsubscribe", -1, b"readonly loading fast"),
            (b"worker", -2, b"write"),
            (b"wq.cancel", -3, b"write"),
            (b"wq.delete", -2, b"write"),
            (b"wq.dequeue", -2, b"write fast"),
            (b"wq.enqueue", -4, b"write denyoom fast"),
            (b"wq.finish", -2, b"write fast"),
            (b"wq.len", 2, b"readonly fast"),
            (b"wq.peek", 2, b"readonly fast"),
            (b"wq.procs", -1, b"readonly"),
            (b"wq.queues", 1, b"readonly"),
            (b"wq.request", 2, b"readonly fast"),
            (b"wq.return", -2, b"write fast"),
            (b"wq.tasks", -2, b"readonly"),
            (b"wq.unwork", -2, b"write"),
            (b"wq.work", -2, b"write fast"),
        ),
    ),
    Difference(
        "list-commands",
        "Reliable lists, as RedisRQ has them, and the events of okq.",
        _COMMANDS,
        _with_rows(
            (b"rq.push", -3, b"write denyoom fast"),
            (b"rq.pushx", -4, b"write denyoom fast"),
            (b"rq.pop", -2, b"write fast"),
            (b"rq.ack", -3, b"write fast"),
            (b"rq.recover", -4, b"write"),
            (b"rq.inspect", -4, b"readonly"),
            (b"rq.info", 2, b"readonly"),
            (b"qlpush", -4, b"write denyoom fast"),
            (b"qrpush", -4, b"write denyoom fast"),
            (b"qlpeek", 2, b"readonly fast"),
            (b"qrpeek", 2, b"readonly fast"),
            (b"qrpop", -2, b"write fast"),
            (b"qack", -3, b"write fast"),
            (b"qregister", -1, b"write fast"),
            (b"qnotify", -2, b"readonly"),
            (b"qflush", 2, b"write"),
            (b"qstatus", -1, b"readonly"),
            (b"qinfo", -1, b"readonly"),
        ),
    ),
    Difference(
        "log-commands",
        "Logs of events with groups of consumers, as bananaq has them.",
        _COMMANDS,
        _with_rows((b"qadd", -4, b"write denyoom fast"), (b"qget", -3, b"write fast"), (b"qgroup", -2, b"write")),
    ),
    Difference(
        "outcome-commands",
        "What becomes of a job: consumers and policies of queues, throttles, dead letters, results, cancel.",
        _COMMANDS,
        _with_rows(
            (b"cancel", -2, b"write fast"),
            (b"qconsumers", -2, b"readonly"),
            (b"qpolicy", -2, b"write fast"),
            (b"qpurge", -2, b"write"),
            (b"redrive", -2, b"write denyoom"),
            (b"schedule", -2, b"write"),
            (b"slots", -2, b"readonly fast"),
            (b"throttle", -3, b"write fast"),
            (b"waitjob", -3, b"readonly"),
        ),
    ),
    Difference(
        "qpeek-dead",
        "QPEEK takes DEAD.",
        _TABLE,
        _other_row(b"qpeek", -3, b"readonly"),
    ),
    Difference(
        "working-progress",
        "WORKING takes PROGRESS.",
        _TABLE,
        _other_row(b"working", -2, b"write fast"),
    ),
    Difference(
        "acl-command",
        "Users and what they may do, as Redis has them.",
        _COMMANDS,
        _with_rows((b"acl", -2, b"readonly admin loading")),
    ),
    Difference(
        "auth-user",
        "Redis clients send AUTH with a user and a password.",
        _TABLE,
        _other_row(b"auth", -2, b"readonly loading fast"),
    ),
    Difference(
        "hello-handshake",
        "HELLO 2 and HELLO 3 are the handshake of Redis clients, possible while the journal is loaded, too.",
        _TABLE,
        _other_row(b"hello", -1, b"readonly loading fast"),
    ),
    Difference(
        "qstat-full",
        "QSTAT takes FULL, for the statistics that the README announced.",
        _TABLE,
        _other_row(b"qstat", -2, b"readonly fast"),
    ),
    Difference(
        "client-loading",
        "Redis clients say CLIENT SETINFO as they connect; refused while the journal is loaded they would give up.",
        _TABLE,
        _other_row(b"client", -2, b"readonly admin loading"),
    ),
    Difference(
        "config-bind",
        "Without a password the node listens on the loopback interface alone.",
        _SETTINGS,
        _setting(b"bind", b"127.0.0.1"),
    ),
    Difference(
        "config-output-limit",
        "A client that asks and never reads would take the whole memory.",
        _SETTINGS,
        _setting(b"client-output-buffer-limit", b"normal 1073741824 268435456 60"),
    ),
    Difference(
        "config-pidfile",
        "systemd needs no file with the process id, and a stale one misleads.",
        _SETTINGS,
        _setting(b"pidfile", b""),
    ),
    Difference(
        "config-keepalive",
        "The value is seconds, as in the file; 1.0-rc1 tells yes or no alone.",
        _SETTINGS,
        _setting(b"tcp-keepalive", b"0"),
    ),
    Difference(
        "config-more-names",
        "Settings that Disque did not have, and some that its CONFIG GET left out.",
        _SETTINGS,
        _with_settings(
            {
                b"aclfile": b"",
                b"acllog-max-len": b"128",
                b"appendfilename": b"disque.aof",
                b"auth-timeout": b"60",
                b"bg-qadd-pool-size": b"128",
                b"client-query-buffer-limit": b"1073741824",
                b"cluster-announce-bus-port": b"0",
                b"cluster-announce-ip": b"",
                b"cluster-announce-port": b"0",
                b"cluster-bind": b"",
                b"cluster-config-file": b"nodes.conf",
                b"cluster-leave-timeout": b"0",
                b"cluster-link-buffer-limit": b"67108864",
                b"cluster-port": b"0",
                b"cluster-secret": b"",
                b"bg-push-pool-size": b"128",
                b"cluster-secret-file": b"",
                b"endpoint": b"",
                b"events": b"off",
                b"events-dir": b"events",
                b"events-file-seconds": b"300",
                b"events-file-size": b"67108864",
                b"dead-ttl": b"604800",
                b"events-keep-days": b"30",
                b"events-keep-size": b"0",
                b"http-audit-file": b"disqued-audit.jsonl",
                b"http-bind": b"127.0.0.1",
                b"http-endpoint": b"",
                b"http-hosts": b"",
                b"http-port": b"0",  # the tests want no admin side
                b"http-token-file": b"",
                b"log-format": b"auto",
                b"max-unauthenticated-clients": b"1000",
                b"persistence": b"none",
                b"proto-max-bulk-len": b"536870912",
                b"reports-file": b"",
                b"result-max": b"65536",
                b"requirepass-file": b"",
                b"rq-orphans": b"requeue",
                b"rq-replicate": b"0",
                b"rq-ttl": b"2592000",
                b"qadd-timeout": b"5000",
                b"redis-backlog": b"67108864",
                b"redis-prefix": b"disqued",
                b"redis-url": b"redis://127.0.0.1:6379/0",
                b"sqlite-file": b"disque.sqlite",
                b"sqlite-history": b"604800",
                b"syslog-enabled": b"no",
                b"syslog-ident": b"disque",
                b"tls-auth-clients": b"yes",
                b"tls-ca-cert-file": b"",
                b"tls-cert-file": b"",
                b"tls-cluster": b"no",
                b"tls-key-file": b"",
                b"tls-port": b"0",
                b"tls-protocols": b"TLSv1.2 TLSv1.3",
                b"wq-retry": b"300",
                b"wq-unique-scope": b"queue",
            }
        ),
    ),
    Difference(
        "info-more-fields",
        "Which program this is, where its jobs are kept, what room is there, what memory is measured against, "
        "how many bugs it met, who was refused, and what goes on in the background.",
        (("INFO",),),
        _with_fields(
            {
                b"disque_version": (b"disqued_version:" + VARIES,),
                b"config_file": (b"python_version:" + VARIES, b"core_build:" + VARIES),
                b"aof_last_write_status": (
                    b"persistence:none",
                    b"dir_free_bytes:" + VARIES,
                    b"dir_size_bytes:" + VARIES,
                ),
                b"mem_allocator": (b"maxmemory:1073741824", b"memory_level:0"),
                b"registered_jobs": (b"dead_jobs:0", b"failing_jobs:0", b"jobs_died:0"),
                b"registered_queues": (
                    b"limited_queues:0",
                    b"slots:0",
                    b"background_pushes:0",
                    b"background_pushes_failed:0",
                ),
                b"blocked_clients": (
                    b"unauthenticated_clients:0",
                    b"mem_clients_normal:" + VARIES,
                    b"mem_clients_limit:" + VARIES,
                    b"mem_clients_ended:" + VARIES,
                ),
                b"latest_fork_usec": (
                    b"internal_errors:0",
                    b"unauthenticated_clients_ended:0",
                    b"acl_access_denied_auth:0",
                    b"acl_access_denied_cmd:0",
                    b"acl_access_denied_key:0",
                    b"acl_access_denied_channel:0",
                    b"acl_access_delayed_auth:0",
                    b"background_additions:0",
                    b"background_additions_failed:0",
                ),
            }
        ),
    ),
    Difference(
        "info-schedules",
        "How schedules stand, and what became of their instants.",
        (("INFO",),),
        _with_fields(
            {
                b"background_pushes_failed": (
                    b"",
                    b"# Schedules",
                    b"registered_schedules:0",
                    b"paused_schedules:0",
                    b"refused_schedules:0",
                    b"schedules_behind_ms:0",
                    b"schedule_instants_fired:0",
                    b"schedule_instants_late:0",
                    b"schedule_instants_skipped:0",
                    b"schedule_instants_missed:0",
                    b"schedule_firings_refused:0",
                ),
            }
        ),
    ),
    Difference(
        "info-events",
        "What became of the event log.",
        (("INFO",),),
        _with_fields(
            {
                b"dir_size_bytes": (
                    b"",
                    b"# Events",
                    b"events:off",
                    b"events_written:0",
                    b"events_lost:0",
                    b"events_files_published:0",
                    b"events_waiting_bytes:0",
                    b"events_last_error:",
                ),
            }
        ),
    ),
    Difference(
        "info-replication",
        "Redis clients look for a role as they connect, and some do not work without one.",
        (("INFO",),),
        _with_fields(
            {
                b"background_additions_failed": (
                    b"",
                    b"# Replication",
                    b"role:master",
                    b"connected_slaves:0",
                    b"master_failover_state:no-failover",
                    b"master_replid:" + VARIES,
                    b"master_replid2:" + b"0" * 40,
                    b"master_repl_offset:0",
                    b"second_repl_offset:-1",
                    b"repl_backlog_active:0",
                    b"repl_backlog_size:0",
                    b"repl_backlog_first_byte_offset:0",
                    b"repl_backlog_histlen:0",
                ),
            }
        ),
    ),
    Difference(
        "info-cluster",
        "What the links to other nodes carry, how much of it waits, and what was dropped or refused.",
        (("INFO",),),
        _with_fields(
            {
                b"repl_backlog_histlen": (
                    b"",
                    b"# Cluster",
                    b"cluster_enabled:1",
                    b"cluster_bus_port:" + VARIES,
                    b"cluster_links_out:0",
                    b"cluster_links_in:0",
                    b"cluster_links_in_handshake:0",
                    b"cluster_stats_messages_sent:0",
                    b"cluster_stats_messages_received:0",
                    b"cluster_dropped_without_link:0",
                    b"cluster_dropped_buffer_full:0",
                    b"cluster_buffered_bytes:0",
                    b"cluster_net_input_bytes:0",
                    b"cluster_net_output_bytes:0",
                    b"cluster_frames_forged:0",
                    b"cluster_frames_replayed:0",
                    b"cluster_frames_oversized:0",
                    b"cluster_frames_malformed:0",
                    b"cluster_bad_messages:0",
                    b"cluster_handshakes_refused:0",
                    b"cluster_handshakes_refused_by_others:0",
                    b"cluster_handshakes_pushed_out:0",
                )
            }
        ),
    ),
    Difference(
        "config-set-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("CONFIG", "SET"),),
        _with_end(b"ERR Invalid argument", b" - allowed are sizes from 1 byte up, such as 100mb"),
    ),
    Difference(
        "pause-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("PAUSE",),),
        _with_end(
            b"ERR syntax error", b" - allowed are in, out, all, none, state, bcast, node, and REASON with a text"
        ),
    ),
    Difference(
        "jscan-state-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("JSCAN",),),
        _with_end(
            b"ERR Invalid job state name",
            b" - allowed are wait-repl, active, queued, acked, dead, ready, in-flight, delayed, elsewhere, done",
        ),
    ),
    Difference(
        "cluster-subcommands",
        _WITH_WHAT_IS_ALLOWED,
        (("CLUSTER", "NOPE"),),
        _with_end(
            b"ERR Wrong CLUSTER subcommand",
            b" - allowed are ASK, COUNT-FAILURE-REPORTS, FORGET, INFO, LEAVING, MEET, MYID, NODES, RESET, SAVECONFIG",
        ),
    ),
    Difference(
        "client-subcommands",
        _WITH_WHAT_IS_ALLOWED,
        (("CLIENT", "NOPE"),),
        _with_end(
            b"ERR Syntax error, try CLIENT",
            b" - allowed are GETNAME, ID, INFO, KILL, LIST, MAINT_NOTIFICATIONS, PAUSE, RECEIPTS, REPLY, SETINFO,"
            b" SETNAME, UNBLOCK",
        ),
    ),
    Difference(
        "ids-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("FASTACK",), ("DELJOB",), ("ENQUEUE",), ("DEQUEUE",)),
        _with_end(b"BADID", b" - allowed are job ids alone"),
    ),
    Difference(
        "ackjob-ids-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("ACKJOB",),),
        _with_end(b"BADID", b" - allowed are job ids, and the option RESULT"),
    ),
    Difference(
        "nack-ids-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("NACK",),),
        _with_end(b"BADID", b" - allowed are job ids, and the options DELAY, REASON, DEAD and UNTRIED"),
    ),
    Difference(
        "addjob-option-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("ADDJOB", "q", "b", "0", "NOPE"),),
        _with_end(
            b"ERR syntax error",
            b" - unknown option 'NOPE'; expected REPLICATE, DELAY, RETRY, TTL, MAXLEN, ASYNC, MAXTRIES, BACKOFF, "
            b"KEEPDEAD, RESULT, HEADER, GROUP or KEY",
        ),
    ),
    Difference(
        "addjob-value-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("ADDJOB", "q", "b", "0", "TTL"),),
        _with_end(
            b"ERR syntax error",
            b" - TTL without its value: allowed are above 0 to 2147483647 seconds, with fractions",
        ),
    ),
    Difference(
        "getjob-option-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("GETJOB", "NOPE", "FROM", "q"),),
        _with_end(b"ERR syntax error", b" - unknown option 'NOPE'; expected " + _GETJOB_OPTIONS),
    ),
    Difference(
        "getjob-from-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("GETJOB", "q"),),
        _with_end(b"ERR syntax error", b" - unknown option 'q'; expected " + _GETJOB_OPTIONS),
    ),
    Difference(
        "getjob-queues-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("GETJOB", "FROM"),),
        _with_end(
            b"ERR syntax error",
            b" - FROM without its value: allowed are any bytes, or none; 65000 at most of a new queue",
        ),
    ),
    Difference(
        "qscan-option-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("QSCAN", "x"),),
        _with_end(
            b"ERR invalid cursor or option name",
            b" - unknown option 'x'; expected cursor, COUNT, BUSYLOOP, MINLEN, MAXLEN, IMPORTRATE, MAXIDLE or REPLY",
        ),
    ),
    Difference(
        "qscan-value-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("QSCAN", "COUNT"),),
        _with_end(
            b"ERR invalid cursor or option name", b" - COUNT without its value: allowed are whole numbers of 64 bits"
        ),
    ),
    Difference(
        "numbers-allowed",
        _WITH_WHAT_IS_ALLOWED,
        (("ADDJOB",), ("GETJOB",), ("QPEEK",)),
        _with_ends(
            {
                b"ERR TTL must": b" - allowed are seconds, with fractions",
                b"ERR RETRY time must": b" - allowed are seconds, with fractions",
                b"ERR DELAY time must": b" - allowed are seconds, with fractions",
                b"ERR REPLICATE must": b" - allowed are whole numbers",
                b"ERR MAXLEN must": b" - allowed are whole numbers",
                b"ERR COUNT must": b" - allowed are whole numbers",
                b"ERR timeout is not": b" - allowed are milliseconds, 0 or more",
                b"ERR value is not": b" - count takes whole numbers of 64 bits",
            }
        ),
    ),
    Difference(
        "cluster-info-leaving",
        "How far leaving has come, and whether the node may be stopped.",
        (("CLUSTER", "INFO"),),
        _with_lines(
            b"cluster_leaving:no",
            b"cluster_leaving_jobs_left:0",
            b"cluster_leaving_acks_left:0",
            b"cluster_leaving_waits_for:",
            b"cluster_safe_to_stop:no",
        ),
    ),
)
