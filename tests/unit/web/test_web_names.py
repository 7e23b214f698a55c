"""The names of one thing in requests and answers, as the reference of the HTTP API lists them."""

import re
from pathlib import Path

from disqued.commands import schedules
from disqued.core.model.policies import QUEUE_FIELD_NAMES
from disqued.web.api import objects
from disqued.web.api.fields import COMMANDS

PAGE = Path(__file__).parents[3] / "docs/reference/http.md"


def test_the_table_of_names_says_how_commands_take_and_answer_them() -> None:
    table = PAGE.read_text().partition("## Names of one thing")[2].partition("## Errors")[0]
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines() if "`" in line]
    rows = [row for row in rows if len(row) == 4]
    fields = {(field.arg.keyword or b"").decode(): field.name
              for name in ("SCHEDULE SET", "QPOLICY") for field in COMMANDS[name].fields}  # fmt: skip
    answered = {name.decode() for name in QUEUE_FIELD_NAMES.values()} | set(schedules.FIELDS)
    shown = {*objects.QUEUE["properties"], *objects.JOB["properties"]}
    assert len(rows) == 9
    for word, field, policy, stat in rows:
        assert re.fullmatch("[A-Z]+", word)
        assert (fields[word], policy in answered, not stat or stat in shown) == (field, True, True), word
