"""Every setting, declared once: name, kind, default, unit, status, documentation, in groups as people read them.

To add a setting, add an attribute to a section here. Derived from it are the typed attribute of `Config`, the lines of
the file, the option and its help, CONFIG GET, SET and REWRITE, the page, disqued.conf and the reference page; what acts
on its value reads `config.<attribute>` or subscribes to its name.

Units stand with each setting.

Source: Disque 1.0-rc1, the directives of its file and its CONFIG command; the texts say where this daemon differs.
"""

from pathlib import Path
from typing import Final

from disqued.config.declaration import File, Section, Status, Value
from disqued.config.kinds import (
    Addresses,
    AddressesOrNone,
    AddressOrNone,
    Choice,
    EndpointStrings,
    FileName,
    FilePath,
    Folder,
    FolderPath,
    KeepAlive,
    Octal,
    OnlyNo,
    OutputLimit,
    OutputLimits,
    Prefix,
    RedisUrl,
    Renames,
    Size,
    SomeOf,
    StoreName,
    Text,
    WholeNumber,
    YesNo,
)
from disqued.core.model.fate import RESULT_MAX

MAX_PASSWORD_BYTES: Final = 512

_NO_SYSLOG: Final = "logs go to standard output or to logfile, from where systemd and syslog take them"
_MB: Final = 2**20
_GB: Final = 2**30


class FileSettings(Section):
    """Where files are."""

    heading = "Files"

    include = Value(
        FilePath(), "",
        "Read another file at this place. Its path is relative to the folder of the file that includes it, so "
        "that a set of files can be moved together; a file may not include itself, directly or through others. "
        "CONFIG REWRITE keeps the line and changes the main file only.",
        listed=False, example="common.conf",
    )  # fmt: skip

    dir = Value(
        Folder(), Path("."),
        "Folder of the journal and of every other file whose path is relative. A relative path is taken from the "
        "folder that the daemon is started in and is absolute from then on. It cannot be changed while the daemon "
        "runs: files that are open would stay behind, and who may send CONFIG SET could have files written anywhere.",
    )  # fmt: skip

    pidfile = File(
        FilePath(), "",
        "File that holds the process id while the daemon serves. Empty for none: systemd needs none, and a "
        "stale file misleads. A symbolic link is refused, and so is what is no file.",
    )  # fmt: skip


class NetworkSettings(Section):
    """How clients connect."""

    heading = "Network"

    port = Value(
        WholeNumber(0, 65535), 7711,
        "TCP port for clients. The cluster bus takes the port 10000 above it unless cluster-port says "
        "otherwise, which a port above 55535 needs. 0 opens no TCP port without TLS; then a tls-port, a "
        "unixsocket or an endpoint is needed.",
    )  # fmt: skip

    bind = Value(
        Addresses(), ("127.0.0.1",),
        "Addresses to accept clients on. Only this machine reaches the default; beyond the loopback addresses a "
        "requirepass or an aclfile is needed, or a tls-port that takes client certificates only and `port 0`, or the "
        "daemon does not start, since whoever connects may read and delete every job. Disque without this directive "
        "listens on all interfaces. A socket that systemd passes, bound to one of these addresses and `port`, is used "
        "instead of one of our own; so it is with unixsocket, with the bus and with http-port.",
    )  # fmt: skip

    unixsocket = File(
        FilePath(), "", "Path of a Unix socket to accept clients on, beside or instead of TCP. Empty for none."
    )

    unixsocketperm = Value(
        Octal(0o777), 0, "Permissions of the Unix socket. 0 leaves them to the umask of the process.", unit="octal"
    )

    endpoint = Value(
        EndpointStrings(), (),
        "Endpoint strings of Twisted to accept clients at, beside port, tls-port and unixsocket. tcp:, unix: "
        "and systemd: are as Twisted has them; ssl:7713:interface=10.0.0.1:privateKey=KEY:certKey=CERTIFICATE "
        "takes caCerts=FILE as well, which lets in nobody but those who have a certificate of these "
        "authorities, and clientAuth=optional, which only looks at one that is shown. What is reached from "
        "beyond this machine needs a requirepass or caCerts.",
    )  # fmt: skip

    tcp_backlog = Value(
        WholeNumber(0, 65535), 511,
        "Connections that may wait to be accepted. The system may cap it (net.core.somaxconn), which matters "
        "when thousands of clients reconnect at once.",
        unit="connections",
    )  # fmt: skip

    tcp_keepalive = Value(
        KeepAlive(), 0,
        "Idle time after which the system asks whether a client is still there. Consumers that block for hours "
        "behind a firewall need it, and so does noticing a machine that vanished. 0 asks never. CONFIG GET "
        "answers seconds, where Disque 1.0-rc1 answers yes or no.",
        unit="seconds", mutable=True,
    )  # fmt: skip

    timeout = Value(
        WholeNumber(), 0,
        "Idle time after which a client is disconnected. A client that waits in a blocking command is not "
        "idle. 0 disconnects nobody.",
        unit="seconds", mutable=True,
    )  # fmt: skip


class TlsSettings(Section):
    """Certificates, and who has to show one."""

    heading = "TLS"

    tls_port = Value(
        WholeNumber(0, 65535), 0,
        "TCP port for clients that speak TLS, on the addresses of bind. 0 for none. With `port 0` nobody is "
        "served without TLS. It needs tls-cert-file and tls-key-file.",
    )  # fmt: skip

    tls_cert_file = File(
        FilePath(), "",
        "File of the certificate that the node shows to clients and to other nodes, in the form PEM. Those "
        "between it and the root follow it. SIGHUP reads it anew, with the key and the authorities, for "
        "connections from then on. INFO tells when it ends, and the log warns 30 days before.",
    )  # fmt: skip

    tls_key_file = File(
        FilePath(), "",
        "File of its key, in the form PEM and without a password. Other users of the machine must not be able "
        "to read it.",
    )  # fmt: skip

    tls_ca_cert_file = File(
        FilePath(), "",
        "File of the authorities whose certificates are taken from clients and other nodes, in the form PEM. "
        "Names in certificates are not compared with anything: who has one of these authorities belongs, so "
        "that they should be yours alone.",
    )  # fmt: skip

    tls_auth_clients = Value(
        Choice(("yes", "no", "optional")), "yes",
        "Whether a client of tls-port has to show a certificate. yes lets in nobody without one, optional looks at one "
        "that is shown, no asks for none. Only yes takes the place of a password beyond the loopback addresses.",
    )  # fmt: skip

    tls_cluster = Value(
        YesNo(), False,
        "Whether the nodes of the cluster speak TLS with each other. Each shows its certificate to each, and one of "
        "another authority is kept out; a cluster-secret may be used as well. It has to be the same on every node.",
    )  # fmt: skip

    tls_protocols = Value(
        SomeOf(("TLSv1.2", "TLSv1.3")), ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS that are spoken by tls-port and the bus. Older ones are known to be weak.",
    )  # fmt: skip


class ClientSettings(Section):
    """How much clients may take."""

    heading = "Clients"

    maxclients = Value(
        WholeNumber(1), 10000,
        "Connections served at the same time. One more is told so and closed. The system's limit of open "
        "files has to be higher.",
        unit="connections", mutable=True,
    )  # fmt: skip

    client_output_buffer_limit = Value(
        OutputLimits(), OutputLimit(_GB, 256 * _MB, 60),
        "How much a client may leave unread. More than the hard limit disconnects it at once, more than the "
        "soft limit when it lasts for that many seconds. Without limits a client that asks and never reads "
        "takes the whole memory, which is why the default is not Disque's `normal 0 0 0`. normal, meaning "
        "every client, is the only class.",
        unit="bytes, bytes, seconds", mutable=True,
    )  # fmt: skip

    client_query_buffer_limit = Value(
        Size(_MB), _GB,
        "How much of a command that has not arrived whole is kept for a client. More disconnects it, since no "
        "sensible command is larger. All connections together hold at most a quarter of maxmemory, but at "
        "least 64 MiB, and one command or reply more; beyond that the node ends the largest. A client whose "
        "commands wait, as behind one that blocks, is read no further than 64 KiB.",
        unit="bytes", mutable=True,
    )  # fmt: skip

    proto_max_bulk_len = Value(
        Size(1024, 2 * _GB), 512 * _MB,
        "Longest argument of a command, and with it the longest body of a job. A longer one is refused by its "
        "declared length, before anything is kept for it. The nodes of a cluster need the same value: a node "
        "ends the link on which a job comes that is too large for it. Other clients have their turn while a long "
        "body is read, stored in a journal, copied and sent, a part at a time; a unique task of more than 170 MB, "
        "whose hash is taken at once, and a change of the store are what holds them up for 100 ms.",
        unit="bytes", mutable=True,
    )  # fmt: skip


class SecuritySettings(Section):
    """Passwords, users, commands taken away."""

    heading = "Security"

    requirepass = Value(
        Text(MAX_PASSWORD_BYTES), "",
        "Password that clients have to give with AUTH or HELLO. Empty for none, which is possible on loopback "
        "addresses, with an aclfile, and where client certificates are needed (see bind). A password set at "
        "run time also locks out the connections that exist.",
        mutable=True, secret=True,
    )  # fmt: skip

    requirepass_file = File(
        FilePath(), "",
        "File whose first line is the requirepass. It must not be readable by other users of the machine. "
        "SIGHUP reads it anew; CONFIG GET does not show what it holds, and CONFIG SET cannot give another "
        "password. Empty for none; with it, requirepass cannot be given.",
    )  # fmt: skip

    aclfile = File(
        FilePath(), "",
        "File of users, a line for each, as ACL LIST shows them. It must not be readable by other users of the "
        "machine. ACL LOAD reads it anew, ACL SAVE writes it. Where it has a line for the user default, that "
        "counts and not requirepass. Empty for none: users made by ACL SETUSER then end with the process.",
    )  # fmt: skip

    acllog_max_len = Value(
        WholeNumber(0, 100_000), 128, "Entries that ACL LOG keeps: what was refused to whom.", unit="entries",
        mutable=True,
    )  # fmt: skip

    auth_timeout = Value(
        WholeNumber(0, 86_400), 60,
        "Time that a client has to authenticate, where it has to. Then its connection is ended, so that nobody "
        "holds connections who has no password. 0 for no limit.",
        unit="seconds", mutable=True,
    )  # fmt: skip

    max_unauthenticated_clients = Value(
        WholeNumber(1, 1_000_000), 1_000,
        "Connections that have not authenticated yet, where they have to. With more the oldest of them is "
        "ended: who knows a password has said it by then. Each may send 10 words of 16 KiB.",
        unit="connections", mutable=True,
    )  # fmt: skip

    rename_command = Value(
        Renames(), (),
        'Give a command another name, or none with "". It may be given many times; it keeps dangerous commands '
        "from applications that share a password. CONFIG does not show it, since the new name is a secret.",
        listed=False, example='DEBUG ""',
    )  # fmt: skip


class LogSettings(Section):
    """The log of the process."""

    heading = "Logs"

    loglevel = Value(
        Choice(("debug", "verbose", "notice", "warning")), "notice",
        "Least important messages that are logged. notice is what an operator wants to read, warning what "
        "needs attention; debug and verbose add what the libraries tell, and no lines of our own so far.",
        mutable=True,
    )  # fmt: skip

    logfile = File(
        FilePath(), "",
        "File that the log is appended to. Empty writes to standard output, where systemd and containers expect it.",
    )  # fmt: skip

    log_format = Value(
        Choice(("auto", "human", "json")), "auto",
        "Form of the log. human is a line to read, json one object a line to collect; auto takes human on a "
        "terminal and in the journal of systemd, and json otherwise.",
    )  # fmt: skip


class MemorySettings(Section):
    """How much jobs may take."""

    heading = "Memory"

    maxmemory = Value(
        Size(1), _GB,
        "Bytes that jobs and queues may take. Above 75 % new jobs get no copy on this node, above 95 % data that "
        "breaks no promise is evicted, at 100 % commands that add data are refused. It cannot be unlimited: a queue "
        "that nobody reads would take the machine down. The interpreter, connections and buffers come on top.",
        unit="bytes", mutable=True,
    )  # fmt: skip

    maxmemory_policy = Value(
        Choice(("acks", "noeviction")), "acks",
        "What is evicted above 95 % of maxmemory. acks evicts acknowledged jobs, delivered at-most-once jobs "
        "and idle queues; noeviction evicts nothing and refuses additions earlier.",
        mutable=True,
    )  # fmt: skip


class ResultSettings(Section):
    """Results of jobs."""

    heading = "Results"

    result_max = Value(
        Size(1, RESULT_MAX), 64 * 1024,
        "Longest result that ACKJOB takes; a longer one is refused, and the job is not acknowledged. Results count "
        "against maxmemory as long as they are kept, on each node that held the job, and are never evicted.",
        unit="bytes", mutable=True,
    )  # fmt: skip


class StreamSettings(Section):
    """Streams: the queue family of QADD."""

    heading = "Logs"

    qadd_timeout = Value(
        WholeNumber(), 5000,
        "How long QADD waits for the copies of an event on other nodes before it answers NOREPL. 0 waits for ever.",
        unit="milliseconds", mutable=True,
    )  # fmt: skip

    bg_qadd_pool_size = Value(
        WholeNumber(1), 128,
        "Events of QADD NOBLOCK that may wait for their copies at the same time. One more is answered BUSY: "
        "nobody hears how such an addition ends, so that only the node itself can slow its producers down.",
        unit="events", mutable=True,
    )  # fmt: skip


class StoreSettings(Section):
    """The store, and what each store reads."""

    heading = "Persistence"

    persistence = Value(
        StoreName(known=("none", "aof", "sqlite", "redis")), "none",
        "Where jobs are kept beside memory. none keeps them nowhere: a single node that stops loses them. aof "
        "writes each change to an append-only file and reads it at the start, sqlite keeps a database that "
        "people can query, redis a Redis server; a plugin may bring more. `aof` is the same as "
        "`appendonly yes`; a file whose two lines contradict each other is refused. When it is changed while "
        "the daemon runs, the new store is given all jobs before it takes the old one's place.",
        mutable=True,
    )  # fmt: skip

    appendonly = Value(
        YesNo(), False,
        "Disque's name for `persistence aof`. yes selects it; no turns it into `persistence none`, and changes "
        "nothing where another store is in use.",
        mutable=True,
    )  # fmt: skip

    appendfilename = File(FileName(), "disque.aof", "Name of the append-only file in `dir`.")

    appendfsync = Value(
        Choice(("always", "everysec", "no")), "everysec",
        "When changes are forced to the disk. always does it before the client hears of them, so that a power cut "
        "loses nothing; everysec may lose about a second and costs little; no leaves it to the system. The end of the "
        "process alone loses nothing with any of them, unless under everysec a write hangs at that moment.",
        mutable=True,
    )  # fmt: skip

    aof_load_truncated = Value(
        YesNo(), True,
        "Start although the append-only file ends within a record, as it does after a power cut. The torn "
        "record is cut off, with a warning; with no the daemon does not start, and someone has to look first.",
        mutable=True,
    )  # fmt: skip

    aof_enqueue_jobs_once = Value(
        YesNo(), False,
        "Queue the jobs again that were queued when the file was written, at the next start only. This is for "
        "a controlled restart: CONFIG SET it, CONFIG REWRITE, SHUTDOWN REWRITE-AOF. After a crash it would "
        "deliver jobs twice, therefore it turns itself off after one use.",
        mutable=True,
    )  # fmt: skip

    no_appendfsync_on_rewrite = Value(
        YesNo(), False,
        "Do not force changes to the disk while the journal is compacted. The compaction writes much, and on a slow "
        "disk each sync would wait for it; but a power cut meanwhile loses what appendfsync promises to keep.",
        mutable=True,
    )  # fmt: skip

    auto_aof_rewrite_percentage = Value(
        WholeNumber(), 100,
        "Growth of the journal since it was last compacted that starts the next compaction. 0 for never.",
        unit="per cent", mutable=True,
    )  # fmt: skip

    auto_aof_rewrite_min_size = Value(
        Size(), 64 * _MB, "Size below which the journal is not worth compacting.", unit="bytes", mutable=True
    )

    aof_rewrite_incremental_fsync = Value(
        YesNo(), True,
        "Force a compacted journal to the disk in pieces rather than all at its end, where one long sync would "
        "make others wait.",
        mutable=True,
    )  # fmt: skip

    sqlite_file = File(FileName(), "disque.sqlite", "Name of the database in `dir` for `persistence sqlite`.")

    sqlite_history = Value(
        WholeNumber(), 7 * 86400,
        "How long the database keeps what is over: jobs that are done, and evictions. 0 keeps none of it.",
        unit="seconds", mutable=True,
    )  # fmt: skip

    redis_url = Value(
        RedisUrl(), "redis://127.0.0.1:6379/0",
        "The Redis server for `persistence redis`. Whoever may send CONFIG GET sees its password, as they do "
        "requirepass.",
        secret=True,
    )  # fmt: skip

    redis_prefix = Value(
        Prefix(), "disqued", "What the keys in the Redis server begin with. Nodes that share a server need one each."
    )

    redis_backlog = Value(
        Size(1), 64 * _MB,
        "Records that may wait for the Redis server at most, when it is slow or away. With more, commands that "
        "add data are refused until it has caught up.",
        unit="bytes", mutable=True,
    )  # fmt: skip


class JobSettings(Section):
    """What jobs are promised whose producer does not say."""

    heading = "Jobs"

    dead_ttl = Value(
        WholeNumber(0, 2**31 - 1), 7 * 86_400,
        "How long a job that is added with MAXTRIES and without KEEPDEAD stays beyond its TTL once it is dead. Jobs "
        "keep what they were added with.",
        unit="seconds", mutable=True,
    )  # fmt: skip


class TaskSettings(Section):
    """WQ commands."""

    heading = "Tasks and workers"

    wq_retry = Value(
        WholeNumber(1, 2**31 - 1), 300,
        "When a task that WQ.ENQUEUE added without RETRY is queued again whose worker and node are gone. One that a "
        "live worker has is never queued again, however long it takes, and one whose worker dies comes back at once.",
        unit="seconds", mutable=True,
    )  # fmt: skip

    wq_unique_scope = Value(
        Choice(("queue", "global")), "queue",
        "Where a task that WQ.ENQUEUE UNIQUE adds must be the only one of its body. queue: among the tasks of "
        "its queue; global: among those of all queues of the node, as with Worqr; for a user who may not "
        "touch all queues it is among those of its queue all the same.",
        mutable=True,
    )  # fmt: skip


class ObservationSettings(Section):
    """The slow log and LATENCY."""

    heading = "Observation"

    slowlog_log_slower_than = Value(
        WholeNumber(-1), 10000,
        "Time in execution from which a command enters the slow log. 0 logs every command, -1 none.",
        unit="microseconds", mutable=True,
    )  # fmt: skip

    slowlog_max_len = Value(
        WholeNumber(), 128, "Entries that the slow log keeps; the oldest go first.", unit="entries", mutable=True
    )

    latency_monitor_threshold = Value(
        WholeNumber(), 0, "Duration from which an event is noted for LATENCY. 0 notes none.", unit="milliseconds",
        mutable=True,
    )  # fmt: skip


class ClusterSettings(Section):
    """Other nodes."""

    heading = "Cluster"

    cluster_port = Value(
        WholeNumber(0, 65535), 0,
        "TCP port that other nodes connect to. 0 takes the port 10000 above `port`; a node with neither joins "
        "no cluster.",
    )  # fmt: skip

    cluster_bind = Value(
        AddressesOrNone(), (),
        "Addresses to accept other nodes on. Empty takes those of `bind`, and of these only the loopback ones "
        "while there is neither a cluster-secret nor tls-cluster. An address beyond loopback without either "
        "stops the start: whoever connects there could take jobs out of the cluster and put jobs in.",
    )  # fmt: skip

    cluster_secret = Value(
        Text(MAX_PASSWORD_BYTES), "",
        "What the nodes of a cluster prove to each other that they know, before anything else; it never travels. It "
        "has to be the same on every node and hard to guess: 32 random characters or more. Empty for none, which is "
        "possible on loopback addresses, and with tls-cluster. What nodes say is signed with it, and is not encrypted; "
        "tls-cluster does that. Whoever may send CONFIG GET sees it, as they do requirepass.",
        secret=True,
    )  # fmt: skip

    cluster_secret_file = File(
        FilePath(), "",
        "File whose first line is the cluster-secret. It must not be readable by other users of the machine. "
        "Empty for none; with it, cluster-secret cannot be given.",
    )  # fmt: skip

    cluster_announce_ip = Value(
        AddressOrNone(), "",
        "Address that other nodes and HELLO are told for this node. Empty for the one that its connections "
        "come from, which is wrong behind a network address translation and in many containers.",
    )  # fmt: skip

    cluster_announce_port = Value(
        WholeNumber(0, 65535), 0,
        "Client port that other nodes and HELLO are told. 0 for `port`, or for tls-port where that is 0: "
        "clients that speak TLS and follow HELLO need the latter where both are open.",
    )  # fmt: skip

    cluster_announce_bus_port = Value(
        WholeNumber(0, 65535), 0, "Bus port that other nodes are told to connect to. 0 for the one that is listened on."
    )

    cluster_config_file = File(
        FileName(), "nodes.conf",
        "Name of the file in `dir` that keeps what the node knows of the cluster, its own id above all.",
    )  # fmt: skip

    cluster_node_timeout = Value(
        WholeNumber(1), 15000,
        "Silence after which another node is suspected to have failed. Suspected nodes get no copies; when "
        "most nodes suspect one, all of them do. Far below a second, a busy machine is taken for a dead one.",
        unit="milliseconds", mutable=True,
    )  # fmt: skip

    cluster_leave_timeout = Value(
        WholeNumber(0, 86_400), 0,
        "How long a node that is told to stop first hands its jobs on to the other nodes. It does so on "
        "SIGTERM, as after CLUSTER LEAVING yes. It stops as soon as nothing is lost by that, or when no node "
        "can be reached that takes jobs; SHUTDOWN stops it at once. 0 stops without leaving, which is what a "
        "restart wants: the jobs come back with the node.",
        unit="seconds", mutable=True,
    )  # fmt: skip

    cluster_link_buffer_limit = Value(
        Size(_MB), 64 * _MB,
        "What may wait in memory for another node that reads slowly or not at all. More is dropped and counted "
        "in INFO; no job is lost by that, since what needs an answer is sent again.",
        unit="bytes", mutable=True,
    )  # fmt: skip


class WebSettings(Section):
    """The admin page, the HTTP API, metrics."""

    heading = "Web"

    http_port = Value(
        WholeNumber(0, 65535), 7780,
        "TCP port of the admin page, the HTTP API and the metrics. 0 for none. Where it is not set and "
        "another process has the default, or the packages were left out of the installation, the node says "
        "so in its log and does without.",
    )  # fmt: skip

    http_bind = Value(
        Addresses(), ("127.0.0.1",),
        "Addresses of the admin page, the HTTP API and the metrics. Beyond the loopback addresses an "
        "http-token-file is needed.",
    )  # fmt: skip

    http_endpoint = Value(
        Text(), "",
        "An endpoint string of Twisted to serve them at instead of http-port and http-bind, for TLS or a Unix socket. "
        "TLS is ssl:7780:privateKey=node.key:certKey=node.pem; SIGHUP takes up a renewed certificate. With "
        "caCerts=FILE only those who have a certificate of these authorities reach it, with clientAuth=optional as "
        "well one that is shown is looked at. An http-token-file is needed. Empty for none.",
    )  # fmt: skip

    http_token_file = File(
        FilePath(), "",
        "File of the tokens that HTTP clients have to give. A line is a name, its role (viewer, operator or admin), "
        "the word bodies if it may see the bodies of jobs, and the token, of 16 to 512 visible characters. Other users "
        "of the machine must not be able to read it; it is read again when it has changed. Empty for none: whoever "
        "reaches the port on this machine is then an admin, unless there is a requirepass, which is then asked for.",
    )  # fmt: skip

    http_hosts = Value(
        Text(), "",
        "Names by which browsers may call the admin side, separated by spaces, beside its addresses and localhost. "
        "Requests to any other host are refused: a web page could have made them under a name of its own.",
    )  # fmt: skip

    http_audit_file = File(
        FilePath(), "disqued-audit.jsonl",
        "File that every change through HTTP is added to, one JSON object a line. Empty for none.",
    )  # fmt: skip

    reports_file = File(
        FilePath(), "",
        "SQLite file that disqued-spark writes its reports to (--reports); the page and the HTTP API show "
        "them. It is only read, and it may be replaced at any time. Empty for none.",
    )  # fmt: skip


class EventLogSettings(Section):
    """The event log: what happened to jobs, for analysis."""

    heading = "Event log"

    events = Value(
        Choice(("all", "terminal", "off")), "off",
        "What the event log tells: every event, those alone that end, bury or redrive a job, or nothing. It is there "
        "for those who analyse what happened to jobs (docs/reference/event-log.md), and no journal: nothing waits for "
        "it, and bodies are never in it.",
        mutable=True,
    )  # fmt: skip

    events_dir = File(
        FolderPath(), "events",
        "Folder of the event log, in which each node has folders of its own, so that nodes may share it.",
    )  # fmt: skip

    events_file_size = Value(
        Size(4_096), 64 * _MB,
        "Size after which a file is published and another one is begun: readers see what is published.", unit="bytes",
        mutable=True,
    )  # fmt: skip

    events_file_seconds = Value(
        WholeNumber(1), 300, "Age after which a file is published and another one is begun.", unit="seconds",
        mutable=True,
    )  # fmt: skip

    events_keep_days = Value(
        WholeNumber(0), 30, "Age after which this node removes what it published; 0 = never.", unit="days", mutable=True
    )

    events_keep_size = Value(
        Size(0), 0,
        "Size of what this node has published and keeps, above which the oldest files are removed; 0 = no limit.",
        unit="bytes", mutable=True,
    )  # fmt: skip


class ListSettings(Section):
    """RQ commands."""

    heading = "Lists"

    rq_ttl = Value(
        WholeNumber(1), 30 * 86_400,
        "Life of what RQ.PUSH, QLPUSH and QRPUSH add, delivered or not. Nothing else removes an element that "
        "nobody acknowledges, so that an end keeps memory from filling up with what was forgotten.",
        unit="seconds", mutable=True,
    )  # fmt: skip

    rq_replicate = Value(
        WholeNumber(0, 65535), 0,
        "Nodes that shall hold each element before its producer is answered. 0 is what ADDJOB does: as many as "
        "can be reached, 3 at most. With another number too few nodes are NOREPL.",
        unit="copies", mutable=True,
    )  # fmt: skip

    rq_orphans = Value(
        Choice(("requeue", "pending")), "requeue",
        "What becomes of an element that waited on a node that is gone, where another node has a copy. requeue "
        "lets consumers have it, be it for the second time; pending puts it among the delivered ones, where "
        "RQ.RECOVER finds it, so that nothing is delivered again without a call.",
        mutable=True,
    )  # fmt: skip

    bg_push_pool_size = Value(
        WholeNumber(1), 128,
        "Pushes with NOBLOCK that may go on in the background at a time. One more is refused: the copies come "
        "more slowly than the events.",
        unit="pushes", mutable=True,
    )  # fmt: skip


class DisqueSettings(Section):
    """Names of Disque that mean nothing here."""

    heading = "Disque's own"

    daemonize = Value(
        OnlyNo(("no",), "going into the background is up to twistd, which does it unless it is given -n"), "no",
        "Disque's way into the background.", status=Status.OBSOLETE,
        reason="twistd goes into the background unless it is given -n",
    )  # fmt: skip

    syslog_enabled = Value(
        YesNo(), False, "Disque's switch for logs to syslog.", status=Status.OBSOLETE, reason=_NO_SYSLOG
    )

    syslog_ident = Value(
        Text(), "disque", "Disque's name in the logs of syslog.", status=Status.OBSOLETE, reason=_NO_SYSLOG
    )

    syslog_facility = Value(
        Choice(("user", *(f"local{number}" for number in range(8)))), "local0", "Disque's facility in syslog.",
        status=Status.OBSOLETE, reason=_NO_SYSLOG,
    )  # fmt: skip

    databases = Value(
        WholeNumber(1), 16, "Number of databases of Redis, of which Disque was made.", status=Status.OBSOLETE,
        reason="there is one set of queues; SELECT knows 0 alone",
    )  # fmt: skip

    maxmemory_samples = Value(
        WholeNumber(1), 5, "How many keys Redis looks at before it evicts one.", mutable=True, status=Status.OBSOLETE,
        reason="jobs that may be evicted are known, nothing is sampled",
    )  # fmt: skip

    activerehashing = Value(
        YesNo(), True, "Whether Redis spends idle time on its hash tables.", mutable=True, status=Status.OBSOLETE,
        reason="Python keeps its own tables",
    )  # fmt: skip

    hz = Value(
        WholeNumber(), 10, "How often a second Disque looks after its clients and timers.", mutable=True,
        status=Status.OBSOLETE, reason="nothing is polled, every deadline has its exact time",
    )  # fmt: skip

    watchdog_period = Value(
        WholeNumber(), 0, "Stall after which Redis logs its stack.", unit="milliseconds", mutable=True,
        status=Status.OBSOLETE, reason="it examines a C stack",
    )  # fmt: skip


class Settings(
    FileSettings, NetworkSettings, TlsSettings, ClientSettings, SecuritySettings, LogSettings,
    MemorySettings, ResultSettings, StreamSettings, StoreSettings, JobSettings, TaskSettings, ObservationSettings,
    ClusterSettings, WebSettings, EventLogSettings, ListSettings, DisqueSettings,
):  # fmt: skip
    """The settings of a daemon, in the order in which people read them."""
