"""The reference of reports.sqlite, as a page of markdown, written from its layout.

python -m disqued.reports.reference > docs/reference/reports.md
"""

import sys
from collections.abc import Iterator
from typing import Final

from disqued.reports.layout import APPLICATION_ID, FAULTS_MAX, TABLES, VERSION, Table

COMMAND_LINE: Final = "python -m disqued.reports.reference > docs/reference/reports.md"
#: What fills each table, and what is kept of it.
ABOUT: Final = {
    "queues": ("What a queue did in an hour or a day, and how long that took.", "`disqued-spark rollup`"),
    "slo": ("A day of a queue, held against its targets.", "`disqued-spark slo`"),
    "audits": ("Each check of the event logs of all nodes, and its verdict.", "`disqued-spark audit`"),
    "faults": (
        f"What these checks found: of each the first {FAULTS_MAX}, of the last hundred checks.", "`disqued-spark audit`"
    ),
    "findings": ("What was wrong with queues and jobs when it was looked at last.", "`disqued-spark doctor`"),
    "runs": ("Each run of a job, the last ten thousand.", "every verb that computes"),
}  # fmt: skip

_INTRODUCTION = f"""\
# The file of the reports

<!-- Written by `{COMMAND_LINE}`: change the layout, not this page. -->

`disqued-spark` writes what people want to see into one file of SQLite (`--reports`); the daemon serves and draws it
(`reports-file`), and [any other program](../how-to/reports.md) may read it, also while it is written. Its tables are
strict: a column holds what its type says, or NULL where something is not known.

Moments are texts such as `2026-11-22T10:00:00Z`, and days such as `2026-11-22`, both of UTC, so that they can be
compared as texts. Spans are whole microseconds and their names end with `_us`; shares are numbers from 0 to 1. Names of
queues are written as in [the event log](event-log.md): bytes that are not UTF-8 as `\\xNN`, and a backslash twice.

What is put again takes the place of the row with the same key: a run that is repeated changes nothing but
`computed_at`.

The header of the file says whose it is: `application_id` is {APPLICATION_ID} (`0x{APPLICATION_ID:08x}`), and
`user_version`, the version of these tables, is {VERSION}. A file of another program, or of a newer version, is left as
it is; one of an older version is brought up to date by the next run.
"""


def page() -> str:
    """The whole page."""
    lines = [_INTRODUCTION.rstrip()]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", *_table(table)]
    return "\n".join([*lines, ""])


def _table(table: Table) -> Iterator[str]:
    about, made_by = ABOUT[table.name]
    yield f"{about} Filled by {made_by}. Key: {', '.join(f'`{name}`' for name in table.key)}."
    yield from ("", "| Column | Type | Meaning |", "|---|---|---|")
    for column in table.columns:
        needed = column.needed or column.name in table.key
        yield f"| `{column.name}` | {column.kind}{'' if needed else ', or NULL'} | {column.doc} |"


if __name__ == "__main__":
    sys.stdout.write(page())
