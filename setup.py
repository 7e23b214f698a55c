"""The compiled build: `disqued.core`, and the way of a request to it and back, as C by mypyc, from the same source.

A wheel holds both: the modules as they are, for those who read them and for tracebacks, and beside each the one that
Python imports.  What an environment variable says of it:

    DISQUED_COMPILE     not set  compile; without a C compiler the core is installed as it is, with a warning
                        1        compile, or fail
                        0        install the core as it is

An editable install is never compiled: it would go on running what no longer stands in the source.
"""

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

WANTED = os.environ.get("DISQUED_COMPILE", "")
#: What is made into machine code, below disqued/: the core, what turns its objects into bytes and back, and what every
#: request passes between the poller and the core.
COMPILED = (
    "core/*.py",
    *(f"commands/{name}.py" for name in ("recalled", "runnable")),
    *(
        f"wire/{name}.py"
        for name in ("brief", "eventlines", "fields", "frames", "jobdump", "logmessages", "messages", "requests")
    ),
    *(
        f"net/{name}.py"
        for name in ("clients", "clock", "driver", "handles", "linkinbox", "linkqueue", "rounds", "traffic", "turns")
    ),
)
#: Hidden, a function is called without a table in between, and linked with all others it may be put where it is called
#: from.  GCC and clang for Linux are told so; elsewhere compilers do what they do by themselves.
FLAGS = ("-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt", "-flto=auto")
#: mypy's words for what it takes for wrong where it has no plugin for zope.interface.  The build does without: types
#: are checked, with it, before anything is built.
UNKNOWN = ("arg-type", "call-arg", "misc")
#: Commands that build: mypyc takes seconds, so metadata and source distributions are made without it.
BUILDING = {"build", "build_ext", "bdist_wheel", "install"}


class Compiler(build_ext):
    """Compiles on all processors, and leaves the core as it is where that cannot be had and need not be."""

    def run(self) -> None:
        try:
            super().run()
        except (CCompilerError, ExecError, PlatformError) as error:
            if WANTED == "1":
                raise
            self.warn(f"disqued.core is installed as it is, since compiling it failed: {error}")
            self.extensions: list[Any] = []

    def build_extensions(self) -> None:
        compile_some = self.compiler.compile

        def compile_all(sources: Sequence[str], *arguments: Any, **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: compile_some([source], *arguments, **options), sources)
                return [file for files in made for file in files]

        self.compiler.compile = compile_all
        super().build_extensions()


def extensions() -> list[Any]:
    """What is to be compiled; nothing where nothing is built."""
    if WANTED not in {"", "0", "1"}:
        sys.exit(f"DISQUED_COMPILE is {WANTED!r}; allowed are 1 (compile, or fail) and 0 (do not), or leave it out")
    if WANTED == "0" or not BUILDING & set(sys.argv[1:]):
        return []
    from mypyc.build import mypycify

    modules = [str(path) for pattern in COMPILED for path in sorted(Path("disqued").glob(pattern))]
    # A file of C for each module, so that all processors have work.
    made: list[Any] = mypycify(
        ["--config-file=", "--follow-imports=silent", *(f"--disable-error-code={code}" for code in UNKNOWN), *modules],
        group_name="disqued_core",
        target_dir="build/c",
        multi_file=True,
        debug_level="0",
    )
    if sys.platform == "linux":
        for each in made:
            each.extra_compile_args += FLAGS
            each.extra_link_args += FLAGS
    return made


setup(ext_modules=extensions(), cmdclass={"build_ext": Compiler})
