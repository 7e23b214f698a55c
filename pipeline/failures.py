"""What went wrong, as one line: for errors that whoever gave the command can mend.

    Py4JJavaError, StreamingQueryException ...    (hundreds of lines: the trace of each cause, and of Python in it)
        Caused by: ... Traceback (most recent call last):
          ...
        disqued.client.errors.Unreachable: no node ...   -->  no node ...
        Caused by: java.io.IOException: Mkdirs failed    -->  Mkdirs failed

The innermost cause says what it is.  What can only be an error of ours has no line, and is shown with all there is.
"""

import re
from typing import Final

from disqued.client.errors import DisquedError

#: The line below a traceback of Python: what was raised.
_RAISED: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
_CAUSE: Final = re.compile(r"^Caused by: ([\w.$]+)(?:: (.*))?$", re.MULTILINE)
_JAVA: Final = re.compile(r"^(?:: )?((?:[a-z]\w*\.)+[A-Z][\w$]*): ")
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE: Final = re.compile(r"(?: SQLSTATE: \w{5})+\s*$")
#: Exceptions of Python, raised where Spark runs it, that tell of what was asked for; besides those of disqued.
_OF_USERS: Final = frozenset({"ValueError", "PermissionError", "FileNotFoundError", "NotADirectoryError"})
#: Exceptions of Java that tell of programs.
_OF_PROGRAMS: Final = re.compile(
    r"(?:NullPointer|ClassCast|IllegalState|NoSuchElement|IndexOutOfBounds|MatchError|AssertionError|NoSuchMethod|"
    r"ClassNotFound|NoClassDef|INTERNAL_ERROR)"
)
#: What Java says, and what is to be done about it.
_HINTS: Final = (
    (
        re.compile("base64"),
        "a body or a header is no base64, such as CSV and JSON are to have: --body text says that they are text",
    ),
)


def told(error: BaseException) -> str | None:
    """Say in a line what went wrong; None = nobody but us can mend it."""
    if isinstance(error, DisquedError):
        return _line(str(error))
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else _line(error.strerror or str(error))
    trace = _trace_of(error)
    return None if trace is None else sentence(*trace)


def _trace_of(error: BaseException) -> tuple[str, str] | None:
    """Give what Spark says of an error, and its trace with all causes; None for an error that is none of Spark's."""
    try:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
        from pyspark.errors.exceptions.captured import CapturedException
    except ImportError:
        return None
    if isinstance(error, Py4JJavaError):
        text = str(error).partition("\n: ")[2]
        return text, text
    if isinstance(error, CapturedException):
        return error._desc or "", error._stackTrace or ""
    # What Spark's Python itself refuses, such as a wrong setting; it is none of Java.
    return (str(error), "") if isinstance(error, PySparkException) else None


def sentence(said: str, trace: str = "") -> str | None:
    """Find the innermost sentence in what Spark says of an error and in its trace; None if it tells of a program."""
    raised = _RAISED.findall(f"{said}\n{trace}")
    if raised:
        name, _, text = raised[-1].partition(": ")
        if not (name.startswith("disqued.") or name in _OF_USERS):
            return None
        return _line(text) or None
    causes = _CAUSE.findall(trace)
    name, text = causes[-1] if causes else ("", "")
    if _OF_PROGRAMS.search(name):
        return None
    if not text:
        head = _JAVA.match(said)
        name, text = (head[1], said[head.end() :]) if head else (name, said)
    if _OF_PROGRAMS.search(name) or "[INTERNAL_ERROR" in text:
        return None
    for pattern, hint in _HINTS:
        if pattern.search(text):
            return hint
    line = _line(text)
    if " " not in line:  # such as the mere name of a host
        return f"{name.rpartition('.')[2]}: {line}" if name else line or None
    return line


def _line(text: str) -> str:
    """The first line, without the names that Spark has for it."""
    first = text.strip().partition("\n")[0]
    return _STATE.sub("", _CONDITION.sub("", first)).strip()
