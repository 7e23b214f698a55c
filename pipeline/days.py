"""Days (UTC) as options of verbs and as names of folders: YYYY-MM-DD, and nothing else.

Days are compared as texts, which is their order only where each of them is written so.
"""

import re
from datetime import date
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

#: As the names of folders have it; whether there is such a day in the calendar is looked at in Python.
WRITTEN: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_WRITTEN: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def is_day(text: str) -> bool:
    """Tell whether a text is a day of the calendar, written YYYY-MM-DD."""
    if not _WRITTEN.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def has_day() -> "Column":
    """Tell rows whose folder `date=` is named as a day from those of other folders."""
    from pyspark.sql import functions as f

    return f.coalesce(f.col("date").rlike(WRITTEN), f.lit(False))
