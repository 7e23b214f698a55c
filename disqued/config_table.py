"""The table of all settings, in groups: each one's name, kind, default, unit, status and documentation, once.

Whoever adds a setting adds it here; the file, the command line, CONFIG, disqued.conf and the reference page follow.
Units stand with each setting.

Source: Disque 1.0-rc1, the directives of its file and its CONFIG command; the texts say where this daemon differs.
"""

from pathlib import Path
from typing import Final

import attrs

from disqued.config_setting import ConfigError, Setting, Status
from disqued.config_values import (
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
from disqued.nearest import near

MAX_PASSWORD_BYTES: Final = 512
REFERENCES: Final = "`disqued --help` and docs/reference/configuration.md"  #: where every setting is named

_NO_SYSLOG = "logs go to standard output or to logfile, from where systemd and syslog take them"
_MB: Final = 2**20
_GB: Final = 2**30

#: Headings, and the settings below each, in the order in which people read them.
GROUPS: Final[tuple[tuple[str, tuple[Setting, ...]], ...]] = (
    (
        "Files",
        (
            Setting(
                "include",
                FilePath(),
                "",
                "Read another file at this place. Its path is relative to the folder of the file that includes it, so "
                "that a set of files can be moved together; a file may not include itself, directly or through others. "
                "CONFIG REWRITE keeps the line and changes the main file only.",
                listed=False,
                example="common.conf",
            ),
            Setting(
                "dir",
                Folder(),
                Path("."),
                "Folder of the journal and of every other file whose path is relative. A relative path is taken from "
                "the folder that the daemon is started in and is absolute from then on. It cannot be changed while the "
                "daemon runs: files that are open would stay behind, and who may send CONFIG SET could have files "
                "written anywhere.",
            ),
            Setting(
                "pidfile",
                FilePath(),
                "",
                "File that holds the process id while the daemon serves. Empty for none: systemd needs none, and a "
                "stale file misleads. A symbolic link is refused, and so is what is no file.",
            ),
        ),
    ),
    (
        "Network",
        (
            Setting(
                "port",
                WholeNumber(0, 65535),
                7711,
                "TCP port for clients. The cluster bus takes the port 10000 above it unless cluster-port says "
                "otherwise, which a port above 55535 needs. 0 opens no TCP port without TLS; then a tls-port, a "
                "unixsocket or an endpoint is needed.",
            ),
            Setting(
                "bind",
                Addresses(),
                ("127.0.0.1",),
                "Addresses to accept clients on. Only this machine reaches the default; beyond the loopback addresses "
                "a requirepass or an aclfile is needed, or a tls-port that takes client certificates only and `port "
                "0`, or the daemon does not start, since whoever connects may read and delete every job. Disque "
                "without this directive listens on all interfaces. A socket that systemd passes, bound to one of "
                "these addresses and `port`, is used instead of one of our own; so it is with unixsocket, with the "
                "bus and with http-port.",
            ),
            Setting(
                "unixsocket",
                FilePath(),
                "",
                "Path of a Unix socket to accept clients on, beside or instead of TCP. Empty for none.",
            ),
            Setting(
                "unixsocketperm",
                Octal(0o777),
                0,
                "Permissions of the Unix socket. 0 leaves them to the umask of the process.",
                unit="octal",
            ),
            Setting(
                "endpoint",
                EndpointStrings(),
                (),
                "Endpoint strings of Twisted to accept clients at, beside port, tls-port and unixsocket. tcp:, unix: "
                "and systemd: are as Twisted has them; ssl:7713:interface=10.0.0.1:privateKey=KEY:certKey=CERTIFICATE "
                "takes caCerts=FILE as well, which lets in nobody but those who have a certificate of these "
                "authorities, and clientAuth=optional, which only looks at one that is shown. What is reached from "
                "beyond this machine needs a requirepass or caCerts.",
            ),
            Setting(
                "tcp-backlog",
                WholeNumber(0, 65535),
                511,
                "Connections that may wait to be accepted. The system may cap it (net.core.somaxconn), which matters "
                "when thousands of clients reconnect at once.",
                unit="connections",
            ),
            Setting(
                "tcp-keepalive",
                KeepAlive(),
                0,
                "Idle time after which the system asks whether a client is still there. Consumers that block for hours "
                "behind a firewall need it, and so does noticing a machine that vanished. 0 asks never. CONFIG GET "
                "answers seconds, where Disque 1.0-rc1 answers yes or no.",
                unit="seconds",
                mutable=True,
            ),
            Setting(
                "timeout",
                WholeNumber(),
                0,
                "Idle time after which a client is disconnected. A client that waits in a blocking command is not "
                "idle. 0 disconnects nobody.",
                unit="seconds",
                mutable=True,
            ),
        ),
    ),
    (
        "TLS",
        (
            Setting(
                "tls-port",
                WholeNumber(0, 65535),
                0,
                "TCP port for clients that speak TLS, on the addresses of bind. 0 for none. With `port 0` nobody is "
                "served without TLS. It needs tls-cert-file and tls-key-file.",
            ),
            Setting(
                "tls-cert-file",
                FilePath(),
                "",
                "File of the certificate that the node shows to clients and to other nodes, in the form PEM. Those "
                "between it and the root follow it. SIGHUP reads it anew, with the key and the authorities, for "
                "connections from then on. INFO tells when it ends, and the log warns 30 days before.",
            ),
            Setting(
                "tls-key-file",
                FilePath(),
                "",
                "File of its key, in the form PEM and without a password. Other users of the machine must not be able "
                "to read it.",
            ),
            Setting(
                "tls-ca-cert-file",
                FilePath(),
                "",
                "File of the authorities whose certificates are taken from clients and other nodes, in the form PEM. "
                "Names in certificates are not compared with anything: who has one of these authorities belongs, so "
                "that they should be yours alone.",
            ),
            Setting(
                "tls-auth-clients",
                Choice(("yes", "no", "optional")),
                "yes",
                "Whether a client of tls-port has to show a certificate. yes lets in nobody without one, optional "
                "looks at one that is shown, no asks for none. Only yes takes the place of a password beyond the "
                "loopback addresses.",
            ),
            Setting(
                "tls-cluster",
                YesNo(),
                False,
                "Whether the nodes of the cluster speak TLS with each other. Each shows its certificate to each, and "
                "one of another authority is kept out; a cluster-secret may be used as well. It has to be the same on "
                "every node.",
            ),
            Setting(
                "tls-protocols",
                SomeOf(("TLSv1.2", "TLSv1.3")),
                ("TLSv1.2", "TLSv1.3"),
                "Versions of TLS that are spoken by tls-port and the bus. Older ones are known to be weak.",
            ),
        ),
    ),
    (
        "Clients",
        (
            Setting(
                "maxclients",
                WholeNumber(1),
                10000,
                "Connections served at the same time. One more is told so and closed. The system's limit of open "
                "files has to be higher.",
                unit="connections",
                mutable=True,
            ),
            Setting(
                "client-output-buffer-limit",
                OutputLimits(),
                OutputLimit(_GB, 256 * _MB, 60),
                "How much a client may leave unread. More than the hard limit disconnects it at once, more than the "
                "soft limit when it lasts for that many seconds. Without limits a client that asks and never reads "
                "takes the whole memory, which is why the default is not Disque's `normal 0 0 0`. normal, meaning "
                "every client, is the only class.",
                unit="bytes, bytes, seconds",
                mutable=True,
            ),
            Setting(
                "client-query-buffer-limit",
                Size(_MB),
                _GB,
                "How much of a command that has not arrived whole is kept for a client. More disconnects it, since no "
                "sensible command is larger. All connections together hold at most a quarter of maxmemory, but at "
                "least 64 MiB, and one command or reply more; beyond that the node ends the largest. A client whose "
                "commands wait, as behind one that blocks, is read no further than 64 KiB.",
                unit="bytes",
                mutable=True,
            ),
            Setting(
                "proto-max-bulk-len",
                Size(1024, 2 * _GB),
                512 * _MB,
                "Longest argument of a command, and with it the longest body of a job. A longer one is refused by its "
                "declared length, before anything is kept for it. The nodes of a cluster need the same value: a node "
                "ends the link on which a job comes that is too large for it.",
                unit="bytes",
                mutable=True,
            ),
        ),
    ),
    (
        "Security",
        (
            Setting(
                "requirepass",
                Text(MAX_PASSWORD_BYTES),
                "",
                "Password that clients have to give with AUTH or HELLO. Empty for none, which is possible on loopback "
                "addresses, with an aclfile, and where client certificates are needed (see bind). A password set at "
                "run time also locks out the connections that exist.",
                mutable=True,
            ),
            Setting(
                "requirepass-file",
                FilePath(),
                "",
                "File whose first line is the requirepass. It must not be readable by other users of the machine. "
                "SIGHUP reads it anew; CONFIG GET does not show what it holds, and CONFIG SET cannot give another "
                "password. Empty for none; with it, requirepass cannot be given.",
            ),
            Setting(
                "aclfile",
                FilePath(),
                "",
                "File of users, a line for each, as ACL LIST shows them. It must not be readable by other users of the "
                "machine. ACL LOAD reads it anew, ACL SAVE writes it. Where it has a line for the user default, that "
                "counts and not requirepass. Empty for none: users made by ACL SETUSER then end with the process.",
            ),
            Setting(
                "acllog-max-len",
                WholeNumber(0, 100_000),
                128,
                "Entries that ACL LOG keeps: what was refused to whom.",
                unit="entries",
                mutable=True,
            ),
            Setting(
                "auth-timeout",
                WholeNumber(0, 86_400),
                60,
                "Time that a client has to authenticate, where it has to. Then its connection is ended, so that nobody "
                "holds connections who has no password. 0 for no limit.",
                unit="seconds",
                mutable=True,
            ),
            Setting(
                "max-unauthenticated-clients",
                WholeNumber(1, 1_000_000),
                1_000,
                "Connections that have not authenticated yet, where they have to. With more the oldest of them is "
                "ended: who knows a password has said it by then. Each may send 10 words of 16 KiB.",
                unit="connections",
                mutable=True,
            ),
            Setting(
                "rename-command",
                Renames(),
                (),
                'Give a command another name, or none with "". It may be given many times; it keeps dangerous commands '
                "from applications that share a password. CONFIG does not show it, since the new name is a secret.",
                listed=False,
                example='DEBUG ""',
            ),
        ),
    ),
    (
        "Logs",
        (
            Setting(
                "loglevel",
                Choice(("debug", "verbose", "notice", "warning")),
                "notice",
                "Least important messages that are logged. notice is what an operator wants to read, warning what "
                "needs attention; debug and verbose add what the libraries tell, and no lines of our own so far.",
                mutable=True,
            ),
            Setting(
                "logfile",
                FilePath(),
                "",
                "File that the log is appended to. Empty writes to standard output, where systemd and containers "
                "expect it.",
            ),
            Setting(
                "log-format",
                Choice(("auto", "human", "json")),
                "auto",
                "Form of the log. human is a line to read, json one object a line to collect; auto takes human on a "
                "terminal and in the journal of systemd, and json otherwise.",
            ),
        ),
    ),
    (
        "Memory",
        (
            Setting(
                "maxmemory",
                Size(1),
                _GB,
                "Bytes that jobs and queues may take. Above 75 % new jobs get no copy on this node, above 95 % data "
                "that breaks no promise is evicted, at 100 % commands that add data are refused. It cannot be "
                "unlimited: a queue that nobody reads would take the machine down. The interpreter, connections and "
                "buffers come on top.",
                unit="bytes",
                mutable=True,
            ),
            Setting(
                "maxmemory-policy",
                Choice(("acks", "noeviction")),
                "acks",
                "What is evicted above 95 % of maxmemory. acks evicts acknowledged jobs, delivered at-most-once jobs "
                "and idle queues; noeviction evicts nothing and refuses additions earlier.",
                mutable=True,
            ),
        ),
    ),
    (
        "Logs",
        (
            Setting(
                "qadd-timeout",
                WholeNumber(),
                5000,
                "How long QADD waits for the copies of an event on other nodes before it answers NOREPL. 0 waits for "
                "ever.",
                unit="milliseconds",
                mutable=True,
            ),
            Setting(
                "bg-qadd-pool-size",
                WholeNumber(1),
                128,
                "Events of QADD NOBLOCK that may wait for their copies at the same time. One more is answered BUSY: "
                "nobody hears how such an addition ends, so that only the node itself can slow its producers down.",
                unit="events",
                mutable=True,
            ),
        ),
    ),
    (
        "Persistence",
        (
            Setting(
                "persistence",
                StoreName(known=("none", "aof", "sqlite", "redis")),
                "none",
                "Where jobs are kept beside memory. none keeps them nowhere: a single node that stops loses them. aof "
                "writes each change to an append-only file and reads it at the start, sqlite keeps a database that "
                "people can query, redis a Redis server; a plugin may bring more. `aof` is the same as "
                "`appendonly yes`; a file whose two lines contradict each other is refused. When it is changed while "
                "the daemon runs, the new store is given all jobs before it takes the old one's place.",
                mutable=True,
            ),
            Setting(
                "appendonly",
                YesNo(),
                False,
                "Disque's name for `persistence aof`. yes selects it; no turns it into `persistence none`, and changes "
                "nothing where another store is in use.",
                mutable=True,
            ),
            Setting(
                "appendfilename",
                FileName(),
                "disque.aof",
                "Name of the append-only file in `dir`.",
            ),
            Setting(
                "appendfsync",
                Choice(("always", "everysec", "no")),
                "everysec",
                "When changes are forced to the disk. always does it before the client hears of them, so that a power "
                "cut loses nothing; everysec may lose about a second and costs little; no leaves it to the system. The "
                "end of the process alone loses nothing with any of them, unless under everysec a write hangs at that "
                "moment.",
                mutable=True,
            ),
            Setting(
                "aof-load-truncated",
                YesNo(),
                True,
                "Start although the append-only file ends within a record, as it does after a power cut. The torn "
                "record is cut off, with a warning; with no the daemon does not start, and someone has to look first.",
                mutable=True,
            ),
            Setting(
                "aof-enqueue-jobs-once",
                YesNo(),
                False,
                "Queue the jobs again that were queued when the file was written, at the next start only. This is for "
                "a controlled restart: CONFIG SET it, CONFIG REWRITE, SHUTDOWN REWRITE-AOF. After a crash it would "
                "deliver jobs twice, therefore it turns itself off after one use.",
                mutable=True,
            ),
            Setting(
                "no-appendfsync-on-rewrite",
                YesNo(),
                False,
                "Do not force changes to the disk while the journal is compacted. The compaction writes much, and on a "
                "slow disk each sync would wait for it; but a power cut meanwhile loses what appendfsync promises to "
                "keep.",
                mutable=True,
            ),
            Setting(
                "auto-aof-rewrite-percentage",
                WholeNumber(),
                100,
                "Growth of the journal since it was last compacted that starts the next compaction. 0 for never.",
                unit="per cent",
                mutable=True,
            ),
            Setting(
                "auto-aof-rewrite-min-size",
                Size(),
                64 * _MB,
                "Size below which the journal is not worth compacting.",
                unit="bytes",
                mutable=True,
            ),
            Setting(
                "aof-rewrite-incremental-fsync",
                YesNo(),
                True,
                "Force a compacted journal to the disk in pieces rather than all at its end, where one long sync would "
                "make others wait.",
                mutable=True,
            ),
            Setting(
                "sqlite-file",
                FileName(),
                "disque.sqlite",
                "Name of the database in `dir` for `persistence sqlite`.",
            ),
            Setting(
                "sqlite-history",
                WholeNumber(),
                7 * 86400,
                "How long the database keeps what is over: jobs that are done, and evictions. 0 keeps none of it.",
                unit="seconds",
                mutable=True,
            ),
            Setting(
                "redis-url",
                RedisUrl(),
                "redis://127.0.0.1:6379/0",
                "The Redis server for `persistence redis`. Whoever may send CONFIG GET sees its password, as they do "
                "requirepass.",
            ),
            Setting(
                "redis-prefix",
                Prefix(),
                "disqued",
                "What the keys in the Redis server begin with. Nodes that share a server need one each.",
            ),
            Setting(
                "redis-backlog",
                Size(1),
                64 * _MB,
                "Records that may wait for the Redis server at most, when it is slow or away. With more, commands that "
                "add data are refused until it has caught up.",
                unit="bytes",
                mutable=True,
            ),
        ),
    ),
    (
        "Tasks and workers",
        (
            Setting(
                "wq-retry",
                WholeNumber(1, 2**31 - 1),
                300,
                "When a task that WQ.ENQUEUE added without RETRY is queued again whose worker and node are gone. One "
                "that a live worker has is never queued again, however long it takes, and one whose worker dies comes "
                "back at once.",
                unit="seconds",
                mutable=True,
            ),
            Setting(
                "wq-unique-scope",
                Choice(("queue", "global")),
                "queue",
                "Where a task that WQ.ENQUEUE UNIQUE adds must be the only one of its body. queue: among the tasks of "
                "its queue; global: among those of all queues of the node, as with Worqr; for a user who may not "
                "touch all queues it is among those of its queue all the same.",
                mutable=True,
            ),
        ),
    ),
    (
        "Observation",
        (
            Setting(
                "slowlog-log-slower-than",
                WholeNumber(-1),
                10000,
                "Time in execution from which a command enters the slow log. 0 logs every command, -1 none.",
                unit="microseconds",
                mutable=True,
            ),
            Setting(
                "slowlog-max-len",
                WholeNumber(),
                128,
                "Entries that the slow log keeps; the oldest go first.",
                unit="entries",
                mutable=True,
            ),
            Setting(
                "latency-monitor-threshold",
                WholeNumber(),
                0,
                "Duration from which an event is noted for LATENCY. 0 notes none.",
                unit="milliseconds",
                mutable=True,
            ),
        ),
    ),
    (
        "Cluster",
        (
            Setting(
                "cluster-port",
                WholeNumber(0, 65535),
                0,
                "TCP port that other nodes connect to. 0 takes the port 10000 above `port`; a node with neither joins "
                "no cluster.",
            ),
            Setting(
                "cluster-bind",
                AddressesOrNone(),
                (),
                "Addresses to accept other nodes on. Empty takes those of `bind`, and of these only the loopback ones "
                "while there is neither a cluster-secret nor tls-cluster. An address beyond loopback without either "
                "stops the start: whoever connects there could take jobs out of the cluster and put jobs in.",
            ),
            Setting(
                "cluster-secret",
                Text(MAX_PASSWORD_BYTES),
                "",
                "What the nodes of a cluster prove to each other that they know, before anything else; it never "
                "travels. It has to be the same on every node and hard to guess: 32 random characters or more. Empty "
                "for none, which is possible on loopback addresses, and with tls-cluster. What nodes say is signed "
                "with it, and is not encrypted; tls-cluster does that. Whoever may send CONFIG GET sees it, as they "
                "do requirepass.",
            ),
            Setting(
                "cluster-secret-file",
                FilePath(),
                "",
                "File whose first line is the cluster-secret. It must not be readable by other users of the machine. "
                "Empty for none; with it, cluster-secret cannot be given.",
            ),
            Setting(
                "cluster-announce-ip",
                AddressOrNone(),
                "",
                "Address that other nodes and HELLO are told for this node. Empty for the one that its connections "
                "come from, which is wrong behind a network address translation and in many containers.",
            ),
            Setting(
                "cluster-announce-port",
                WholeNumber(0, 65535),
                0,
                "Client port that other nodes and HELLO are told. 0 for `port`, or for tls-port where that is 0: "
                "clients that speak TLS and follow HELLO need the latter where both are open.",
            ),
            Setting(
                "cluster-announce-bus-port",
                WholeNumber(0, 65535),
                0,
                "Bus port that other nodes are told to connect to. 0 for the one that is listened on.",
            ),
            Setting(
                "cluster-config-file",
                FileName(),
                "nodes.conf",
                "Name of the file in `dir` that keeps what the node knows of the cluster, its own id above all.",
            ),
            Setting(
                "cluster-node-timeout",
                WholeNumber(1),
                15000,
                "Silence after which another node is suspected to have failed. Suspected nodes get no copies; when "
                "most nodes suspect one, all of them do. Far below a second, a busy machine is taken for a dead one.",
                unit="milliseconds",
                mutable=True,
            ),
            Setting(
                "cluster-leave-timeout",
                WholeNumber(0, 86_400),
                0,
                "How long a node that is told to stop first hands its jobs on to the other nodes. It does so on "
                "SIGTERM, as after CLUSTER LEAVING yes. It stops as soon as nothing is lost by that, or when no node "
                "can be reached that takes jobs; SHUTDOWN stops it at once. 0 stops without leaving, which is what a "
                "restart wants: the jobs come back with the node.",
                unit="seconds",
                mutable=True,
            ),
            Setting(
                "cluster-link-buffer-limit",
                Size(_MB),
                64 * _MB,
                "What may wait in memory for another node that reads slowly or not at all. More is dropped and counted "
                "in INFO; no job is lost by that, since what needs an answer is sent again.",
                unit="bytes",
                mutable=True,
            ),
        ),
    ),
    (
        "Web",
        (
            Setting(
                "http-port",
                WholeNumber(0, 65535),
                7780,
                "TCP port of the admin page, the HTTP API and the metrics. 0 for none. Where it is not set and "
                "another process has the default, or the packages were left out of the installation, the node says "
                "so in its log and does without.",
            ),
            Setting(
                "http-bind",
                Addresses(),
                ("127.0.0.1",),
                "Addresses of the admin page, the HTTP API and the metrics. Beyond the loopback addresses an "
                "http-token-file is needed.",
            ),
            Setting(
                "http-endpoint",
                Text(),
                "",
                "An endpoint string of Twisted to serve them at instead of http-port and http-bind, for TLS or a Unix "
                "socket. TLS is ssl:7780:privateKey=node.key:certKey=node.pem; SIGHUP takes up a renewed certificate. "
                "With caCerts=FILE only those who have a certificate of these authorities reach it, with "
                "clientAuth=optional as well one that is shown is looked at. An http-token-file is needed. Empty for "
                "none.",
            ),
            Setting(
                "http-token-file",
                FilePath(),
                "",
                "File of the tokens that HTTP clients have to give. A line is a name, its role (viewer, operator or "
                "admin), the word bodies if it may see the bodies of jobs, and the token, of 16 to 512 visible "
                "characters. Other users of the machine must not be able to read it; it is read again when it has "
                "changed. Empty for none: whoever reaches the port on this machine is then an admin, unless there is "
                "a requirepass, which is then asked for.",
            ),
            Setting(
                "http-hosts",
                Text(),
                "",
                "Names by which browsers may call the admin side, separated by spaces, beside its addresses and "
                "localhost. Requests to any other host are refused: a web page could have made them under a name of "
                "its own.",
            ),
            Setting(
                "http-audit-file",
                FilePath(),
                "disqued-audit.jsonl",
                "File that every change through HTTP is added to, one JSON object a line. Empty for none.",
            ),
            Setting(
                "reports-file",
                FilePath(),
                "",
                "SQLite file that disqued-spark writes its reports to (--reports); the page and the HTTP API show "
                "them. It is only read, and it may be replaced at any time. Empty for none.",
            ),
        ),
    ),
    (
        "Event log",
        (
            Setting(
                "events",
                Choice(("all", "terminal", "off")),
                "off",
                "What the event log tells: every event, those alone that end a job, or nothing. It is there for those "
                "who analyse what happened to jobs (docs/reference/event-log.md), and no journal: nothing waits for "
                "it, and bodies are never in it.",
                mutable=True,
            ),
            Setting(
                "events-dir",
                FolderPath(),
                "events",
                "Folder of the event log, in which each node has folders of its own, so that nodes may share it.",
            ),
            Setting(
                "events-file-size",
                Size(4_096),
                64 * _MB,
                "Size after which a file is published and another one is begun: readers see what is published.",
                unit="bytes",
                mutable=True,
            ),
            Setting(
                "events-file-seconds",
                WholeNumber(1),
                300,
                "Age after which a file is published and another one is begun.",
                unit="seconds",
                mutable=True,
            ),
            Setting(
                "events-keep-days",
                WholeNumber(0),
                30,
                "Age after which this node removes what it published; 0 = never.",
                unit="days",
                mutable=True,
            ),
            Setting(
                "events-keep-size",
                Size(0),
                0,
                "Size of what this node has published and keeps, above which the oldest files are removed; 0 = no "
                "limit.",
                unit="bytes",
                mutable=True,
            ),
        ),
    ),
    (
        "Lists",
        (
            Setting(
                "rq-ttl",
                WholeNumber(1),
                30 * 86_400,
                "Life of what RQ.PUSH, QLPUSH and QRPUSH add, delivered or not. Nothing else removes an element that "
                "nobody acknowledges, so that an end keeps memory from filling up with what was forgotten.",
                unit="seconds",
                mutable=True,
            ),
            Setting(
                "rq-replicate",
                WholeNumber(0, 65535),
                0,
                "Nodes that shall hold each element before its producer is answered. 0 is what ADDJOB does: as many as "
                "can be reached, 3 at most. With another number too few nodes are NOREPL.",
                unit="copies",
                mutable=True,
            ),
            Setting(
                "rq-orphans",
                Choice(("requeue", "pending")),
                "requeue",
                "What becomes of an element that waited on a node that is gone, where another node has a copy. requeue "
                "lets consumers have it, be it for the second time; pending puts it among the delivered ones, where "
                "RQ.RECOVER finds it, so that nothing is delivered again without a call.",
                mutable=True,
            ),
            Setting(
                "bg-push-pool-size",
                WholeNumber(1),
                128,
                "Pushes with NOBLOCK that may go on in the background at a time. One more is refused: the copies come "
                "more slowly than the events.",
                unit="pushes",
                mutable=True,
            ),
        ),
    ),
    (
        "Disque's own",
        (
            Setting(
                "daemonize",
                OnlyNo(("no",), "going into the background is up to twistd, which does it unless it is given -n"),
                "no",
                "Disque's way into the background.",
                status=Status.OBSOLETE,
                reason="twistd goes into the background unless it is given -n",
            ),
            Setting(
                "syslog-enabled",
                YesNo(),
                False,
                "Disque's switch for logs to syslog.",
                status=Status.OBSOLETE,
                reason=_NO_SYSLOG,
            ),
            Setting(
                "syslog-ident",
                Text(),
                "disque",
                "Disque's name in the logs of syslog.",
                status=Status.OBSOLETE,
                reason=_NO_SYSLOG,
            ),
            Setting(
                "syslog-facility",
                Choice(("user", *(f"local{number}" for number in range(8)))),
                "local0",
                "Disque's facility in syslog.",
                status=Status.OBSOLETE,
                reason=_NO_SYSLOG,
            ),
            Setting(
                "databases",
                WholeNumber(1),
                16,
                "Number of databases of Redis, of which Disque was made.",
                status=Status.OBSOLETE,
                reason="there is one set of queues; SELECT knows 0 alone",
            ),
            Setting(
                "maxmemory-samples",
                WholeNumber(1),
                5,
                "How many keys Redis looks at before it evicts one.",
                mutable=True,
                status=Status.OBSOLETE,
                reason="jobs that may be evicted are known, nothing is sampled",
            ),
            Setting(
                "activerehashing",
                YesNo(),
                True,
                "Whether Redis spends idle time on its hash tables.",
                mutable=True,
                status=Status.OBSOLETE,
                reason="Python keeps its own tables",
            ),
            Setting(
                "hz",
                WholeNumber(),
                10,
                "How often a second Disque looks after its clients and timers.",
                mutable=True,
                status=Status.OBSOLETE,
                reason="nothing is polled, every deadline has its exact time",
            ),
            Setting(
                "watchdog-period",
                WholeNumber(),
                0,
                "Stall after which Redis logs its stack.",
                unit="milliseconds",
                mutable=True,
                status=Status.OBSOLETE,
                reason="it examines a C stack",
            ),
        ),
    ),
)

SETTINGS: Final[dict[str, Setting]] = {
    setting.name: attrs.evolve(setting, group=group) for group, members in GROUPS for setting in members
}


#: Directives of Redis that people look for here, and what there is in their place.
_INSTEAD: Final = {
    "user": "users are lines of the file that aclfile names",
    "protected-mode": "it is always on: beyond the loopback addresses a requirepass or an aclfile is needed",
    "enable-protected-configs": "what would be protected is never changed while the node runs",
}


class UnknownDirective(ConfigError):
    """No directive has this name."""

    def __init__(self, name: str) -> None:
        meant = near(name, SETTINGS)
        self.suggestion: str | None = meant[0] if meant else None
        hint = f"did you mean {' or '.join(meant)}?" if meant else f"allowed are those that {REFERENCES} name"
        hint = _INSTEAD.get(name.lower(), hint)
        super().__init__(name, problem=f"unknown directive; {hint}")


def setting_called(name: str) -> Setting:
    """The setting of a name, in any case. Raises: UnknownDirective."""
    setting = SETTINGS.get(name.lower())
    if setting is None:
        raise UnknownDirective(name)
    return setting
