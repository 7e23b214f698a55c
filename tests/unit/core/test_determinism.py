"""The same seed and the same inputs give the same bytes out, whatever the hash seed of Python."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from random import Random

from disqued.commands import table
from disqued.commands.table import BLOCKED
from disqued.core.model.outbox import JOB_ADDED
from disqued.errors import CommandError
from disqued.wire.jobdump import encode_event, encode_job
from tests.core_fixtures import Server, words

ROOT = Path(__file__).parents[3]
STEPS = 3_000


def life(seed: int, node_seed: int = 1) -> str:
    """Lead a random life; returns the digest of every reply, record and deadline in their order."""
    rng = Random(seed)
    server = Server(seed=node_seed, maxmemory=150_000)
    ids: list[bytes] = []
    digest = sha256()
    for step in range(STEPS):
        queue = rng.choice(["a", "b", "c"])
        some = rng.sample(ids[-30:], min(len(ids), rng.randrange(3)))
        command = rng.choice(
            [
                ["ADDJOB", queue, f"body {step}", 0, "RETRY", rng.choice([0, 1, 5]), "DELAY", rng.choice([0, 0, 2])],
                ["ADDJOB", queue, "", 0, "TTL", rng.randint(1, 50)],
                ["GETJOB", "NOHANG", "COUNT", rng.randint(1, 3), "FROM", queue, "a"],
                ["GETJOB", "TIMEOUT", rng.choice([0, 500]), "FROM", queue, "b"],
                *(
                    [verb, *some]
                    for verb in ["ACKJOB", "FASTACK", "NACK", "ENQUEUE", "DEQUEUE", "DELJOB", "WORKING", "SHOW"]
                ),
                ["PAUSE", queue, rng.choice(["in", "out", "none", "none"])],
                ["QSTAT", queue, "FULL"],
                ["QPEEK", queue, 3],
                ["QSCAN"],
                ["JSCAN", "COUNT", 1_000],
            ]
        )
        client = f"client {step}"
        reply = answer(server, words(command), client)
        if reply.startswith(b"+DI"):
            ids.append(reply[1:-2])
        digest.update(reply)
        if rng.randrange(3) == 0:
            server.advance(rng.choice([1, 100, 700, 20_000]))
        if rng.randrange(50) == 0:
            server.node.make_room()
            server.settle()
        if rng.randrange(10) == 0:
            server.gone(f"client {rng.randrange(step + 1)}")
        digest.update(told(server))
    return digest.hexdigest()


def answer(server: Server, line: list[bytes], client: str) -> bytes:
    """The reply as it stands on the wire; nothing for a client that is blocked."""
    try:
        value = server(*line, client=client)
    except CommandError as error:
        return error.line
    return b"" if value is BLOCKED else table.find(line).encoder(2)(value)


def told(server: Server) -> bytes:
    """What the step left in the outbox, and when the node wants to be looked at, as bytes."""
    encode = table.find([b"GETJOB", b"FROM"]).encoder(2)
    parts = [b"%d" % (server.node.deadline() or 0)]
    parts += [
        encode_job(record[1], 0) if record[0] == JOB_ADDED else encode_event(record, 0) for record in server.journal
    ]
    for client, values in server.answers.items():
        parts.append(repr(client).encode())
        parts += map(encode, values)
    server.journal.clear()
    server.answers.clear()
    return b"|".join(parts)


def digest_with_hash_seed(hash_seed: str) -> str:
    """The digest of one life, led in a process of its own."""
    program = "from tests.unit.core.test_determinism import life; print(life(7))"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_same_seed_and_inputs_give_the_same_bytes() -> None:
    assert life(7) == life(7)


def test_other_inputs_or_another_seed_give_other_bytes() -> None:
    assert len({life(7), life(8), life(7, node_seed=2)}) == 3


def test_the_hash_seed_of_python_changes_nothing() -> None:
    assert digest_with_hash_seed("1") == digest_with_hash_seed("2") == life(7)
