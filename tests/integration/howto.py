"""A reader of a page who types what it shows, and looks whether what comes is what the page says.

    page --steps()--> (typed, shown) --Terminal--> bash or redis-cli in a folder of its own --compared--> shown

What differs from run to run is translated: ports and folders, which the test names, and ids, which are learnt from
the first line that shows them.  `...` alone in a line stands for lines left out, within a line for some of its text.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread

import attrs

from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, environment, free_port, wait_until
from tests.pages import FENCE, Following

#: What is typed: into a shell, or into the redis-cli of a port.
TYPED = re.compile(rf"(?:\$|{re.escape(HOST)}:(\d+)>) (.*)")
IDS = (re.compile(r"\bDI[0-9a-f]{44}SQ\b"), re.compile(r"\b[0-9a-f]{40}\b"))
#: Typed again until the answer is as shown: these change nothing, and what they tell may take a moment.
LOOKS = re.compile(r".*\b(INFO|NODES|QLEN|QSTAT|SHOW|JSCAN|CLIENT LIST|curl|grep|ls)\b")

Start = Callable[..., Daemon]


@attrs.frozen
class Step:
    """A line that a page shows to be typed."""

    typed: str
    shown: tuple[str, ...]
    port: str = ""  #: of redis-cli; empty = a shell
    heading: str = ""


def steps(page: str) -> list[Step]:
    """All that a page shows to be typed, in its order."""
    return list(_steps(FENCE.sub("", (ROOT / page).read_text())))


def _steps(text: str) -> Iterator[Step]:
    heading, step = "", None
    for line in [*text.splitlines(), ""]:
        typed = TYPED.fullmatch(line.strip()) if line.startswith("    ") else None
        if step and (typed or not line.startswith("    ")):
            yield step
            step = None
        if line.startswith("#"):
            heading = line.strip("# ")
        if typed:
            step = Step(typed[2], (), typed[1] or "", heading)
        elif step:
            step = attrs.evolve(step, shown=(*step.shown, line.strip()))


def fences(page: str, language: str = "") -> list[str]:
    """The blocks of a page in a language, as they stand there."""
    return [text for name, text in FENCE.findall((ROOT / page).read_text()) if name == language]


def matches(printed: list[str], shown: list[str]) -> bool:
    """Say whether what was printed is what is shown."""
    lines = ["(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in shown]
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in printed)) is not None


@attrs.define
class Terminal:
    """Where a page is typed: its folder, its daemons, and what stands for what."""

    start: Start
    folder: Path
    #: What the page says -> what it is in this run.
    words: dict[str, str] = attrs.field(factory=dict)
    nodes: dict[str, Daemon] = attrs.field(factory=dict)
    #: The words before each line that is typed into a shell: those that bring it to another host.
    host: Sequence[str] = ()
    #: Those that begin a daemon while something else is typed.
    beginning: list[Thread] = attrs.field(factory=list)
    #: The page that is typed: its lines are ticked off.
    lines: Following | None = None

    def __attrs_post_init__(self) -> None:
        """Let redis-cli print what it prints on a screen."""
        self.stand_in("redis-cli", f'exec {shutil.which("redis-cli")} --no-raw -h {HOST} "$@"')

    def stand_in(self, program: str, script: str) -> None:
        """Put a script of sh in the place of a program."""
        path = self.folder / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def translated(self, text: str) -> str:
        """Say it with the words of this run."""
        if not self.words:
            return text
        longest_first = sorted(self.words, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: self.words[found[0]], text)

    def check(self, step: Step) -> None:
        """Type a line, and hold the answer to what is shown."""
        self._check(step)
        self.ran(step.typed)

    def ran(self, line: str) -> None:
        """Tick a line off."""
        if self.lines:
            self.lines.ran(line)

    def _check(self, step: Step) -> None:
        if step.typed.startswith("disqued --") and step.typed.endswith(" &"):
            for folder in re.findall(r" --dir (\S+)", step.typed):
                assert (self.folder / folder).is_dir(), f"a node makes no folder, so that {step.typed} would fail"
            self.begin(step.typed.removeprefix("disqued ").removesuffix(" &"))
            return
        said: list[str] = []

        def is_as_shown() -> bool:
            said[:] = self.type(step)
            return self._is(said, list(step.shown))

        if LOOKS.match(step.typed):
            wait_until(is_as_shown, f"{step.typed} answers {step.shown}; at first it was {self.type(step)}")
        else:
            assert is_as_shown(), (step, said)

    def begin(self, options: str) -> Daemon:
        """Start a node with the options that a page gives."""
        words = self.translated(options).split()
        given = dict(zip(words[::2], words[1::2], strict=True))
        port, folder = given.pop("--port", "7711"), given.pop("--dir", "data")
        if given.get("--http-port", "0") not in {"0", *self.words.values()}:
            given["--http-port"] = self.words.setdefault(given["--http-port"], str(free_port()))
        known = next((shown for shown, daemon in self.nodes.items() if port in (shown, str(daemon.port))), port)
        again = self.nodes[known].port if known in self.nodes else 0
        more = [word for pair in given.items() for word in pair]
        self.nodes[known] = self.start(*more, directory=self.folder / folder, port=again)
        self.words[known] = str(self.nodes[known].port)
        return self.nodes[known]

    def type(self, step: Step) -> list[str]:
        """Type a line; returns the lines that are printed, those of errors as well."""
        typed = self.translated(step.typed)
        if step.port:
            argv = ["redis-cli", "--no-raw", "-h", HOST, "-p", self.translated(step.port)]
            done = subprocess.run(argv, input=typed, capture_output=True, text=True, timeout=LIMIT, check=True)
        else:
            path = f"{self.folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
            done = subprocess.run(
                [*self.host, "bash", "-c", typed], cwd=self.folder, env={**environment(), "PATH": path}, timeout=LIMIT,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        return [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]

    def _is(self, printed: list[str], shown: list[str]) -> bool:
        learnt = dict(self.words)
        for pattern in IDS:
            ours, theirs = (pattern.findall("\n".join(lines)) for lines in (shown, printed))
            for one, other in zip(ours, theirs, strict=False):
                learnt.setdefault(one, other)
        before, self.words = self.words, learnt
        if matches(printed, [self.translated(line) for line in shown if line]):
            return True
        self.words = before
        return False
