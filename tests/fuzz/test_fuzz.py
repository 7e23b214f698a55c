"""A short run of every fuzzer: all that was ever kept, and the same mutants of it each time."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from disqued.web.http.exchange import Role, Visitor
from tests.fuzz import access
from tests.fuzz.answers import check, read_all
from tests.fuzz.corpus import FOLDER, kept
from tests.fuzz.mutating import LONGEST, mutants
from tests.fuzz.targets import TARGETS
from tests.pages import following

#: Mutants of a run: a few seconds for each target.
COUNTS = {"resp": 400, "bus": 400, "journal": 2_000, "http": 1_000, "users": 400, "tokens": 300}
KEPT = [(name, file) for name in TARGETS for file in kept(name)]

# Twisted's HTTP, and what it calls, tell of things that only who writes a client could change.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize(("name", "file"), KEPT)
def test_a_kept_input_does_no_harm(name: str, file: str) -> None:
    TARGETS[name](kept(name)[file])


@pytest.mark.parametrize("name", TARGETS)
def test_mutants_of_the_kept_inputs_do_no_harm(name: str) -> None:
    for data in mutants(name, list(kept(name).values()), COUNTS[name]):
        try:
            TARGETS[name](data)
        except BaseException as error:
            error.add_note(
                f"the input was {data!r}; `python -m tests.fuzz keep {name}` keeps what comes in by its input"
            )
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_the_mutants_are_others_and_the_same_each_time(name: str) -> None:
    corpus = list(kept(name).values())
    first, again = (list(mutants(name, corpus, 50)) for _ in range(2))
    assert first == again
    assert len(set(first)) > 40
    assert max(map(len, first)) <= LONGEST


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_inputs_to_begin_with(name: str) -> None:
    inputs = kept(name).values()
    assert len(inputs) >= 8
    assert all(len(data) <= LONGEST for data in inputs)


@pytest.mark.parametrize(
    ("file", "door"),
    [
        ("stranger-asks", "disqued.net.clients.access.Access.admit"),
        ("few-asks", "disqued.net.clients.access.check_command"),
        ("many-queues", "disqued.commands.permission.User.may_read"),
        ("many-jobs", "disqued.commands.permission._check_queue"),
    ],
)
def test_a_door_that_is_open_is_noticed_by_a_kept_input(monkeypatch: pytest.MonkeyPatch, file: str, door: str) -> None:
    monkeypatch.setattr(door, lambda *_: True)
    with pytest.raises(AssertionError):
        TARGETS["users"](kept("users")[file])


@pytest.mark.parametrize("file", ["stranger-lists", "viewer-api", "viewer-writes"])
def test_an_admin_side_without_roles_is_noticed_by_a_kept_input(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    monkeypatch.setattr("disqued.web.http.auth.Access.admit", lambda *_: None)
    monkeypatch.setattr("disqued.web.http.auth._visitor", lambda *_: Visitor("ann", Role.ADMIN, True, "127.0.0.1:1"))
    access.guarded.cache_clear()
    try:
        with pytest.raises(AssertionError):
            TARGETS["tokens"](kept("tokens")[file])
    finally:
        access.guarded.cache_clear()


PROBLEM = b'{"status": 404, "detail": "why", "code": "NOJOB"}'


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("HTTP/1.1 500 Internal error", PROBLEM),
        ("HTTP/1.1 299 Strange", b"{}"),
        ("HTTP/1.1 twelve", b"{}"),
        ("SIP/2.0 200 OK", b"{}"),
        ("HTTP/1.1 200 OK", b"{"),
        ("HTTP/1.1 200 OK", b'"Traceback (most recent call last)"'),
        ("HTTP/1.1 400 Bad request", PROBLEM),
        ("HTTP/1.1 404 Not found", PROBLEM.replace(b"NOJOB", b"OHNO")),
        ("HTTP/1.1 404 Not found", PROBLEM.replace(b"NOJOB", b"NOREPL")),
        ("HTTP/1.1 404 Not found", PROBLEM.replace(b"why", b"")),
    ],
)
def test_an_answer_that_must_not_be_is_noticed_behind_a_good_one(head: str, body: bytes) -> None:
    def answered(head: str, body: bytes) -> bytes:
        fields = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return f"{head}\r\n{fields}".encode() + body

    def look(received: bytes) -> int:
        answers = read_all(received, ["GET", "GET"])
        for answer in answers:
            check(answer, b"")
        return len(answers)

    fine = answered("HTTP/1.1 404 Not found", PROBLEM)
    assert look(fine + fine) == 2
    with pytest.raises(AssertionError):
        look(fine + answered(head, body))


def test_the_lines_of_the_page_try_an_input_and_keep_it() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs/explanation/fuzzing.md").read_text()
    lines = re.findall(r"^    python -m (tests\.fuzz .*?) *#", page, re.MULTILINE)
    assert [line.split()[1] for line in lines] == ["try", "keep"]
    known = next(
        path
        for path in sorted((FOLDER / "http").iterdir())
        if path.name == hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()[:16]
    )
    for line in lines:
        typed = re.sub(r"build/fuzz/http-crash-\w+", str(known), line)
        assert str(known) in typed
        done = subprocess.run(
            f"{sys.executable} -m {typed}", shell=True, cwd=root, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout == ("" if "try" in line else f"{known}\n")
    with following("docs/explanation/fuzzing.md") as page_lines:
        page_lines.ran(*(f"python -m {line}" for line in lines))
