"""Whatever a power cut leaves of a database, its log and what is written beside, no acknowledged job is missing."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from disqued.core.model.outbox import JOB_ADDED
from disqued.persistence.interface import StoreError
from tests.crashcalls import Call, record, states
from tests.databases import opened

MOST = 240  #: states that are tried

#: Commits, checkpoints, a compaction, a rewrite and starts, one of them after kill -9.
PROGRAM = """
import os, sys
from pathlib import Path
from disqued.persistence.disk import Disk
from disqued.persistence.sqlite import log, store as module
from tests.databases import added, opened

folder, policy, forgets = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
note = os.open(folder / "note", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

class Forgetful(Disk):
    def fdatasync(self, fd):
        if not forgets or not os.readlink(f"/proc/self/fd/{fd}").endswith(forgets):
            super().fdatasync(fd)

def life(number, *, rewrites=False, compacts=False, ends=True):
    store, records = opened(folder, fsync=policy, disk=Forgetful())
    for job in range(number * 100, number * 100 + 8):
        os.write(note, b"begun %d" % job)
        store.put(added(job, b"%d " % job + bytes(range(97, 123)) * (job * 7 % 90)))
        os.write(note, b"done %d" % job)
        if job % 3 == 0:
            store.loop.wait(store._ask(lambda: store._writer.log.checkpoint(store._writer._connection)))
    if compacts:
        store.compact_now()
    if rewrites:
        jobs = [added(job, b"%d again" % job) for job in range(number * 100, number * 100 + 8)]
        os.write(note, b"rewritten")
        store.put_all([record for record in records] and jobs or jobs)
    if ends:
        store.end()
        os.write(note, b"done ended")

life(0)
life(1, compacts=True)
life(2, rewrites=True)
if os.fork() == 0:
    life(3, ends=False)
    os._exit(0)
os.wait()
life(4)
"""


def violations(calls: list[Call], place: Path, policy: str, seed: int) -> Iterator[str]:
    for number, state in enumerate(states(calls, Random(seed), MOST)):
        folder = place / f"{seed} {number}"
        state.write_to(folder)
        done = {int(word.split()[1]) for word in state.words if word.startswith("done ") and word != "done ended"}
        begun = {int(word.split()[1]) for word in state.words if word.startswith("begun ")}
        if "rewritten" in state.words:
            # What stood there before may be gone.
            done = {job for job in done if job >= 200}
        try:
            store, records = opened(folder, fsync=policy)
            store.end()
        except StoreError as error:
            yield f"after call {state.at}: {error}"
        else:
            found = {int(record[1].id[2:46]) for record in records if record[0] == JOB_ADDED}
            if found - begun or (policy == "always" and done - found):
                yield f"after call {state.at}: {sorted(done - found)} are missing, {sorted(found - begun)} never were"
        shutil.rmtree(folder)


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_no_power_cut_takes_what_was_acknowledged_or_is_taken_for_damage(tmp_path: Path, policy: str) -> None:
    (tmp_path / "data").mkdir()
    calls = record(tmp_path / "data", PROGRAM, policy, "")
    assert sum(call.kind == "s" for call in calls) > (30 if policy == "always" else 5)
    assert list(violations(calls, tmp_path, policy, 1)) == []


def test_the_model_catches_a_log_that_is_not_synced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    calls = record(tmp_path / "data", PROGRAM, "always", "-wal")
    assert next(violations(calls, tmp_path, "always", 1), None)
