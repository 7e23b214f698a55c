"""Build disqued: the core, and the path of a request to it and back, as C by mypyc, from the same source.

A wheel holds both: the modules as they are, for readers and tracebacks, and next to each the compiled one that Python
imports.  An environment variable decides:

    DISQUED_COMPILE     not set  compile; where that fails, warn once and install the core as it is
                        1        compile, or fail
                        0        install the core as it is

Compiling can fail in three places: there is no C compiler or no header of Python (a probe finds that first), mypyc
refuses the source or breaks, the C compiler fails later.  pip shows the warning of a successful build with `-v` alone,
so `disqued --version` names the build that is installed.

mypyc needs the packages whose types the compiled modules use: pyproject.toml lists them, so that an isolated build has
them.  An editable install is never compiled: it would go on running what no longer stands in the source.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Distribution, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

LEAST = (3, 11)  #: of Python, as in setup.cfg
if sys.version_info < LEAST:  # the first thing that a user of an older one reads
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"disqued needs Python {LEAST[0]}.{LEAST[1]} or newer, and {sys.executable} is Python {found}")

WANTED = os.environ.get("DISQUED_COMPILE", "")
#: What is made into machine code, below disqued/: the core, what turns its objects into bytes and back, and what every
#: request passes between the poller and the core.
COMPILED = (
    "core/**/*.py",
    *(f"commands/{name}.py" for name in ("dispatch", "parse_cache", "runnable")),
    *(
        f"wire/{name}.py"
        for name in (
            "brief",
            "eventlines",
            "fields",
            "frames",
            "jobdump",
            "messages",
            "pieces",
            "questionmessages",
            "requests",
            "slotmessages",
            "streammessages",
        )
    ),
    *(f"net/clients/{name}.py" for name in ("connection", "input_queue", "pending_replies", "traffic")),
    *(f"net/cluster/{name}.py" for name in ("linkinbox", "linkqueue")),
    *(f"net/loop/{name}.py" for name in ("clock", "handles", "rounds", "turns")),
    "net/process/driver.py",
)
#: Hidden, a function is called without a table in between, and linked with all others it may be put where it is called
#: from.  GCC and clang for Linux know these flags; elsewhere compilers do what they do by themselves.
LINUX = ("-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt", "-flto=auto")
FLAGS = [*LINUX] if sys.platform == "linux" else []
#: mypy's words for what it takes for wrong where it has no plugin for zope.interface.  The build does without: types
#: are checked, with it, before anything is built.
UNKNOWN = ("arg-type", "call-arg", "list-item", "misc")
#: Commands that build: mypyc takes seconds, so metadata and source distributions are made without it.
BUILDING = {"build", "build_ext", "bdist_wheel", "install"}
#: The one warning of a build that was to be compiled and is not.
INTERPRETED = (
    "WARNING: disqued is installed without its compiled core, and so runs more slowly, since {reason}."
    "  DISQUED_COMPILE=1 makes this an error, DISQUED_COMPILE=0 is silent."
)


class NotCompiled(Exception):
    """The core cannot be compiled; the text is the reason."""


class FreshBuild(build):
    """Builds into an empty folder: what an earlier build of other sources left there would become part of the wheel."""

    def run(self) -> None:
        if Path(self.build_base) in Path(self.build_lib).parents:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class Compiler(build_ext):
    """Compiles on all processors; where that fails and may fail, leaves the core as it is."""

    def run(self) -> None:
        try:
            super().run()
        except (Exception, SystemExit) as error:
            reason = f"compiling it failed: {error or type(error).__name__}"
            # Half of the compiled modules would hide their source and not work.
            for made in self.get_outputs():
                Path(made).unlink(missing_ok=True)
            self.extensions: list[Any] = []
            interpreted(reason)

    def build_extensions(self) -> None:
        compile_some = self.compiler.compile

        def compile_all(sources: Sequence[str], *arguments: Any, **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: compile_some([source], *arguments, **options), sources)
                return [file for files in made for file in files]

        self.compiler.compile = compile_all
        super().build_extensions()


def interpreted(reason: str) -> list[Any]:
    """Go on without the compiled core, and say why; or fail where it is required."""
    if WANTED == "1":
        sys.exit(f"DISQUED_COMPILE is 1, and disqued cannot be compiled: {reason}")
    # Behind everything that the compilers have said, on the stream that pip, uv and build show at once.
    sys.stdout.flush()
    sys.stderr.write(INTERPRETED.format(reason=" ".join(reason.split())) + "\n")
    return []


def probe() -> None:
    """Compile a line that includes Python's header, which takes a moment; mypyc takes half a minute.

    Raises NotCompiled.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n")
        command = build_ext(
            Distribution({"ext_modules": [Extension("probe", [str(source)], extra_compile_args=FLAGS)]})
        )
        command.build_lib = command.build_temp = folder
        try:
            command.ensure_finalized()
            command.run()
        except (Exception, SystemExit) as error:
            raise NotCompiled(f"there is no C compiler that works with the headers of Python ({error})") from error


def translate() -> list[Any]:
    """Make C of the modules, one file for each, so that all processors have work.  Raises NotCompiled."""
    try:
        from mypyc.build import mypycify

        made: list[Any] = mypycify(
            [
                "--config-file=",
                "--follow-imports=silent",
                *(f"--disable-error-code={code}" for code in UNKNOWN),
                *(str(path) for pattern in COMPILED for path in sorted(Path("disqued").glob(pattern))),
            ],
            group_name="disqued_core",
            target_dir="build/c",
            multi_file=True,
            debug_level="0",
        )
    except (Exception, SystemExit) as error:
        raise NotCompiled(f"mypyc has not translated it ({error or type(error).__name__}; see above)") from error
    for each in made:
        each.extra_compile_args = [*each.extra_compile_args, *FLAGS]
        each.extra_link_args = [*each.extra_link_args, *FLAGS]
    return made


def extensions() -> list[Any]:
    """What is to be compiled; nothing where nothing is built, or where it cannot be."""
    if WANTED not in {"", "0", "1"}:
        sys.exit(f"DISQUED_COMPILE is {WANTED!r}; allowed are 1 (compile, or fail) and 0 (do not), or leave it out")
    if WANTED == "0" or not BUILDING & set(sys.argv[1:]):
        return []
    try:
        probe()
        return translate()
    except NotCompiled as error:
        return interpreted(str(error))


setup(ext_modules=extensions(), cmdclass={"build": FreshBuild, "build_ext": Compiler})
