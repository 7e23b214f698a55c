"""`python -m tests.fuzz`: long runs.

    run [--minutes M] [TARGET ...]   each target for its share of the time; a find is written to build/fuzz and told
    try TARGET FILE ...              run inputs
    keep TARGET < INPUT              put an input into the corpus

With atheris, the search is guided by what each input covers, and what covers more goes into build/fuzz/TARGET, which
the next run begins with; without it the inputs are mutants of the corpus, each run with another seed.
"""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

from disqued.testing.arguments import ExactParser

ROOT = Path(__file__).resolve().parents[2]
FOUND = ROOT / "build" / "fuzz"
PROCESS_S = 60  #: seconds that one process searches, with memory for the daemons that the collector has not found yet
NAMES = ("resp", "bus", "journal", "http", "users", "tokens")


def main() -> int:
    """Do what is asked; 1 = something was found."""
    options = ExactParser(prog="python -m tests.fuzz")
    parts = options.add_subparsers(dest="part", required=True)
    run = parts.add_parser("run")
    run.add_argument("--minutes", type=float, default=10.0)
    run.add_argument("targets", nargs="*", choices=[[], *NAMES], default=[])
    tried = parts.add_parser("try")
    tried.add_argument("target", choices=NAMES)
    tried.add_argument("files", nargs="+", type=Path)
    kept = parts.add_parser("keep")
    kept.add_argument("target", choices=NAMES)
    guided = parts.add_parser("guided")
    guided.add_argument("target", choices=NAMES)
    guided.add_argument("rest", nargs="*")
    asked = options.parse_args()
    if asked.part == "run":
        names = asked.targets or NAMES
        return max([_run(name, asked.minutes * 60 / len(names)) for name in names])
    if asked.part == "guided":
        return _guided(asked.target, asked.rest)
    from tests.fuzz.corpus import keep
    from tests.fuzz.targets import TARGETS

    if asked.part == "keep":
        sys.stdout.write(f"{keep(asked.target, sys.stdin.buffer.read())}\n")
    else:
        for path in asked.files:
            TARGETS[asked.target](path.read_bytes())
    return 0


def _run(name: str, seconds: float) -> int:
    """Run a target for a time."""
    folder = FOUND / name
    folder.mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("atheris") is None:
        return _blind(name, seconds)
    corpus = Path(__file__).parent / "corpus" / name
    argv = [sys.executable, "-m", "tests.fuzz", "guided", name, "--"]
    flags = ["-max_len=4096", f"-timeout={seconds(30):.0f}", "-rss_limit_mb=4096", f"-artifact_prefix={FOUND}/{name}-"]
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        span = f"-max_total_time={max(1, min(left, PROCESS_S)):.0f}"
        if subprocess.run([*argv, span, *flags, str(folder), str(corpus)], cwd=ROOT, check=False).returncode:
            return 1
    return 0


def _guided(name: str, rest: list[str]) -> int:
    """Search with atheris, until its time is over or something is found; this does not return."""
    import atheris

    with atheris.instrument_imports(include=["disqued"]):
        from tests.fuzz.targets import TARGETS

    atheris.Setup([f"fuzz-{name}", *rest], TARGETS[name])
    atheris.Fuzz()
    return 0


def _blind(name: str, seconds: float) -> int:
    from tests.fuzz.corpus import kept
    from tests.fuzz.mutating import mutants
    from tests.fuzz.targets import TARGETS

    ends, corpus, runs = time.monotonic() + seconds, list(kept(name).values()), 0
    seed = time.time_ns()
    for data in mutants(name, corpus, 1 << 40, seed):
        if time.monotonic() > ends:
            break
        runs += 1
        try:
            TARGETS[name](data)
        except BaseException:
            found = FOUND / f"{name}-crash-{runs}"
            found.write_bytes(data)
            sys.stdout.write(f"{name}: found after {runs} inputs, seed {seed}: {found}\n")
            raise
    sys.stdout.write(f"{name}: {runs} inputs, nothing found (without atheris)\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
