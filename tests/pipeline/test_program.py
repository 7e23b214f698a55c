"""`disqued-spark` as a process of its own, with a Spark of its own."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.integration.daemon import LIMIT, environment, wait_until
from tests.pipeline.histories import history, write
from tests.pipeline.test_ingest import of_lines, seen
from tests.programs import Program

LINES = history(13, 20)


def test_it_takes_events_in_until_it_is_stopped(tmp_path: Path) -> None:
    events, tables, reports = (tmp_path / name for name in ("events", "tables", "reports.sqlite"))
    write(events, LINES[:30])
    words = ["ingest", "--events", events, "--tables", tables, "--reports", reports, "--every", "0.2"]
    with (tmp_path / "told").open("w") as told:
        process = Program(
            [sys.executable, "-m", "disqued.pipeline", *map(str, words)],
            cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=told,
            start_new_session=True,
        )  # fmt: skip
    with process:
        try:
            wait_until(lambda: told_of(reports) == [("ingest", "done", 30)], "30 events", 8 * LIMIT)
            write(events, LINES[30:])
            wait_until(lambda: told_of(reports) == [("ingest", "done", len(LINES))], "all events", 8 * LIMIT)
            os.killpg(process.pid, signal.SIGTERM)  # Spark hears it, too, as a service manager does it
            said, _ = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert process.returncode == 0, (tmp_path / "told").read_text()
    assert said == b""
    assert "Traceback" not in (tmp_path / "told").read_text()
    assert seen(tables) == of_lines(LINES)
    assert told_of(reports) == [("ingest", "done", len(LINES))]


def test_what_spark_defaults_conf_says_is_left_as_it_is(tmp_path: Path) -> None:
    chosen = ["spark.master local[1]", "# a remark", "spark.sql.shuffle.partitions = 3", "spark.ui.enabled:false"]
    (tmp_path / "spark-defaults.conf").write_text("\n".join([*chosen, "spark.sql.session.timeZone Europe/Berlin"]))
    names = ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone", "spark.sql.parquet.compression.codec")
    code = f"""
from disqued.pipeline.session import spark_session
with spark_session("test") as spark:
    print(spark.sparkContext.master, *map(spark.conf.get, {names}))
"""
    told = subprocess.run(
        [sys.executable, "-c", code], env={**environment(), "SPARK_CONF_DIR": str(tmp_path)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=8 * LIMIT,
    )  # fmt: skip
    assert told.stdout.split() == ["local[1]", "3", "UTC", "zstd"], "what the jobs rely on is not to be chosen"


def told_of(reports: Path) -> list[tuple[str, str, int]]:
    """What the reports say of all runs together."""
    if not reports.exists():
        return []
    with closing(sqlite3.connect(reports)) as database:
        if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'runs'").fetchone():
            return []
        return database.execute("SELECT job, status, sum(rows) FROM runs GROUP BY job, status").fetchall()
