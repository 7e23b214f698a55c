"""One session of the blocking client of the library, with the redis-py that is found first; prints what came.

python older_redis_py.py PORT TLS_PORT CA SILENT_PORT
"""

import json
import re
import sys

import redis

from disqued.client import BadJobId, Job, NotTrusted, Tls, Unreachable
from disqued.client.blocking import Client, Worker


def refusals(silent: str, secure: str) -> list[str]:
    """What comes of a node that says nothing, and of one that is not trusted."""
    found = []
    with Client(f"127.0.0.1:{silent}", patience=0.5, reply_timeout=0.3) as client:
        try:
            client.add("q", "lost")
        except Unreachable as error:
            found.append(str(error).rpartition(": ")[2].rstrip(")"))
    with Client(f"disqueds://127.0.0.1:{secure}", patience=0.5) as client:
        try:
            client.add("q", "nobody trusts it")
        except NotTrusted:
            found.append("not trusted")
    return found


def fetches(client: Client) -> int:
    """How often the node was asked for jobs."""
    found = re.search(rb"cmdstat_getjob:calls=(\d+)", client.call("INFO", "commandstats"))
    assert found is not None
    return int(found[1])


def main() -> None:
    port, secure, ca, silent = sys.argv[1:]
    told: dict[str, object] = {"redis": redis.__version__, "refused": refusals(silent, secure)}
    with Client(f"127.0.0.1:{port}", reply_timeout=0.3) as client:
        client.add("q", "by tcp", retry=60)
        [job] = client.get("q")
        told["body"], told["acked"] = job.body.decode(), client.ack(job)
        try:
            client.call("ACKJOB", "DInonsense")
        except BadJobId as error:
            told["word"] = error.word
        before = fetches(client)
        told["none"] = client.get("nobody", timeout=1)  # waits longer than a reply may take
        told["asked"] = fetches(client) - before
        client.add("q", "late", delay=1)
        [late] = client.get("q", timeout=30)
        told["late"] = late.body.decode()
        client.ack(late)
        # A live worker has a connection of its own.
        client.add("tasks", "a task")
        bodies: list[str] = []

        def work(job: Job) -> None:
            bodies.append(job.body.decode())
            worker.stop()

        worker = Worker(client, ["tasks"], work, live=True, name="press")
        worker.run()
        told["worked"], told["tasks left"] = bodies, client.qlen("tasks")
    with Client(f"disqueds://127.0.0.1:{secure}", tls=Tls(ca=ca)) as client:
        told["by tls"] = client.qlen("q")
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
