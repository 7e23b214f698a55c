"""A program of Spark that takes this package along, to a cluster where it is not installed.

    spark-submit --py-files disqued.zip program.py      `python -m disqued.pipeline.ship disqued.zip` makes it
    python program.py                                   where it is installed for the driver alone

    ship(spark)      packs it, if it is not in a zip already; Spark gives that to every executor
                     registers the format `disqued`, by a class whose code travels by itself

The zip has what the connector is made of, all of it Python: disqued, attrs, redis and mypy_extensions.  Executors need
pyspark, pyarrow and pandas besides.  Stores (`aof`, `sqlite`) need Twisted where they are read, which does not travel.

Spark gives Python files to executors, and to most of the processes that it starts beside the driver; to that in which
the reader of a stream lives it does not.  So the class that is registered finds the zip by itself.
"""

import atexit
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.types import StructType

import disqued

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamWriter

#: What travels, by the names of modules.
MODULES: Final = ("disqued", "pyspark_disqued", "attr", "attrs", "mypy_extensions", "redis", "typing_extensions")
#: Parts of disqued that are the daemon's alone.
LEFT_BEHIND: Final = frozenset({"web", "testing", "__pycache__"})
EPOCH: Final = (1980, 1, 1, 0, 0, 0)  #: of every file: the same files make the same zip


def ship(spark: "SparkSession") -> str:
    """Make `format("disqued")` work wherever this session runs tasks; returns the path of the zip."""
    archive = _zip_of_this() or _packed()
    context = spark.sparkContext
    if Path(archive).name not in (context._python_includes or ()):
        context.addPyFile(archive)
    spark.dataSource.register(carrier_of(archive))
    return archive


def pack(path: Path) -> None:
    """Write the zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in MODULES:
            for file, inside in sorted(_files_of(name), key=lambda each: each[1]):
                archive.writestr(zipfile.ZipInfo(inside, EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)


def _files_of(name: str) -> Iterator[tuple[Path, str]]:
    """Name the files of a module, and how each is called in the zip; links among folders are followed."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return
    origin = Path(spec.origin)
    if spec.submodule_search_locations is None:
        yield origin, origin.name
        return
    folders = [(origin.parent, name)]
    while folders:
        folder, inside = folders.pop()
        for each in folder.iterdir():
            if each.is_dir() and each.name not in LEFT_BEHIND:
                folders.append((each, f"{inside}/{each.name}"))
            elif each.suffix == ".py":
                yield each, f"{inside}/{each.name}"


def _zip_of_this() -> str | None:
    """Name the zip that this program has disqued from; None = there is none."""
    parents = Path(str(disqued.__file__)).parents
    return next((str(path) for path in parents if path.is_file() and zipfile.is_zipfile(path)), None)


def _packed() -> str:
    folder = Path(tempfile.mkdtemp(prefix="disqued-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "disqued.zip"
    pack(path)
    digest = blake2b(path.read_bytes(), digest_size=4).hexdigest()
    return str(path.rename(folder / f"disqued-{disqued.__version__}-{digest}.zip"))


def carrier_of(archive: str) -> type[DataSource]:
    """Make the class that Spark is given; it needs nothing but pyspark where it arrives.

    Classes of modules travel by their names, and those that a function makes as code.
    """

    class Carrier(DataSource):
        """Queues of disqued, whose code is in a zip."""

        @classmethod
        def name(cls) -> str:
            return "disqued"

        def _real(self) -> DataSource:
            """Find the source itself, in the zip if need be."""
            import importlib
            import os

            try:
                module = importlib.import_module("disqued.pipeline.connector.source")
            except ImportError:
                from pyspark import SparkFiles

                there = archive if os.path.exists(archive) else SparkFiles.get(os.path.basename(archive))
                sys.path.insert(1, there)
                importlib.invalidate_caches()
                module = importlib.import_module("disqued.pipeline.connector.source")
            real: DataSource = module.DisquedDataSource(self.options)
            return real

        def schema(self) -> StructType | str:
            return self._real().schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            return self._real().reader(schema=schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return self._real().streamReader(schema=schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return self._real().writer(schema=schema, overwrite=overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":
            return self._real().streamWriter(schema=schema, overwrite=overwrite)

    return Carrier


def main() -> None:
    """Write the zip that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write("usage: python -m disqued.pipeline.ship FILE.zip\n")
        raise SystemExit(2)
    pack(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
