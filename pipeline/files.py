"""Files below the root of the tables, by way of Hadoop: of this machine, of HDFS, of an object store.

Names are URIs as Spark takes them.  What is written with `write_text` is there at once, or not at all.
"""

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES_APART: Final = "\n"
MS_IN_S: Final = 1_000
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
#: Where other file systems may be said to be meant by names that say none.
_ELSEWHERE: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT")


def here(path: str, conf: Sequence[str] = ()) -> Path | None:
    """Give what a name means on this machine, as far as that is sure before Spark is there to be asked; or None.

    `conf` are the settings that Spark is given.
    """
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    if _SCHEME.match(path) or any(os.environ.get(name) for name in _ELSEWHERE):
        return None
    return None if any("defaultFS" in word for word in conf) else Path(path)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock of this machine; it ends with the process.  Raises BlockingIOError if others have it, or waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


class FileSystems:
    """The file systems that a session reaches."""

    def __init__(self, spark: "SparkSession") -> None:
        # Py4J's view of the JVM has no types.
        self._jvm: Any = spark.sparkContext._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        where = self._jvm.org.apache.hadoop.fs.Path(path)
        return where, where.getFileSystem(self._conf)

    def exists(self, path: str) -> bool:
        where, system = self._at(path)
        return bool(system.exists(where))

    def is_folder(self, path: str) -> bool:
        where, system = self._at(path)
        return bool(system.exists(where) and system.getFileStatus(where).isDirectory())

    def is_local(self, path: str) -> bool:
        _, system = self._at(path)
        return str(system.getUri().getScheme()) == "file"

    def local(self, path: str) -> str:
        """Name a file of this machine as this machine does."""
        where, _ = self._at(path)
        return str(where.toUri().getPath())

    def qualified(self, path: str) -> str:
        """Name a file or a folder with all that tells where it is."""
        where, system = self._at(path)
        return str(where.makeQualified(system.getUri(), system.getWorkingDirectory()).toString())

    def resolved(self, path: str) -> str:
        """Name it by the one name that it has, however it is called: links of this machine are followed."""
        return (
            f"file:{Path(self.local(self.qualified(path))).resolve()}" if self.is_local(path) else self.qualified(path)
        )

    def modified(self, path: str) -> float:
        """When it was last changed, in seconds since 1970."""
        where, system = self._at(path)
        return int(system.getFileStatus(where).getModificationTime()) / MS_IN_S

    def matching(self, pattern: str) -> list[str]:
        """Name what matches a pattern of Hadoop's, sorted; `*` matches no slash."""
        where, system = self._at(pattern)
        found = system.globStatus(where)
        if not found:
            return []
        # One text: to ask for each name by itself takes a millisecond of each.
        paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(found)
        text = self._jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(paths).mkString(NAMES_APART)
        return sorted(str(text).split(NAMES_APART))

    def rename(self, old: str, new: str) -> bool:
        """Move a file or a folder to a name that is free; False if there is none of the old name."""
        source, system = self._at(old)
        if not system.exists(source):
            return False
        goal, _ = self._at(new)
        system.mkdirs(goal.getParent())
        if not system.rename(source, goal):
            raise OSError(f"{old} could not be renamed to {new}")
        return True

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing happens if it is not there."""
        where, system = self._at(path)
        system.delete(where, True)

    def read_text(self, path: str) -> str | None:
        """Read a small file; None if there is none."""
        where, system = self._at(path)
        if not system.exists(where):
            return None
        stream = system.open(where)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Write a small file, which takes the place of the one before as a whole."""
        aside, system = self._at(f"{path}.new")
        stream = system.create(aside, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        where, _ = self._at(path)
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(system.getUri(), self._conf)
        context.rename(aside, where, self._overwriting())

    def _overwriting(self) -> Any:
        """`Options.Rename.OVERWRITE` as the array that varargs want."""
        kind = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        array = self._gateway.new_array(kind, 1)
        array[0] = kind.OVERWRITE
        return array
