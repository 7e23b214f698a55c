"""The page on tables says which columns there are; it is held against the code."""

import re
from pathlib import Path

import pytest

from disqued.pipeline import tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "tables.md").read_text()
TABLES = [thing for thing in vars(tables).values() if isinstance(thing, tables.LakeTable)]


@pytest.mark.parametrize("table", TABLES, ids=[table.name for table in TABLES])
def test_the_page_has_the_columns_of_each_table(table: tables.LakeTable) -> None:
    [section] = re.findall(rf"^## {table.name}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    told = re.findall(r"^\| `(\w+)` \| ([A-Z]+) \|", section, re.MULTILINE)
    assert [" ".join(column) for column in told] == table.schema.split(", ")
