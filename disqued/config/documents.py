"""The documents made from the declarations of settings: disqued.conf and the reference page.

Both are committed, and a test compares them with the declarations.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from disqued.config.declaration import Setting, Status

_CONF_HEAD: Final = """\
# Configuration of disqued. Written from disqued/config/settings.py by
# `python -m disqued.config conf`.
#
# Start the daemon with it: twistd -n disqued --config disqued.conf. Every
# setting stands here with its default; to change one, take away the # in
# front of its name.
#
# A line is a directive and its value; a comment has a line of its own. Values
# with blanks or quotes stand in "..." (with \\n \\r \\t \\b \\a \\\\ \\" and
# \\xHH) or in '...'. Sizes are bytes or have a unit: 1k is 1000, 1kb is 1024,
# and so m, mb, g, gb, in any case. What is given later wins; options of the
# command line win over the file. ${CREDENTIALS_DIRECTORY} in the path of a
# file, in endpoint and in http-endpoint, is the folder of the credentials that
# systemd has loaded for the service."""

_MARKDOWN_HEAD: Final = """\
# Configuration

<!-- Written from disqued/config/settings.py by `python -m disqued.config markdown`; change it there. -->

The daemon takes its settings from a file (`twistd -n disqued --config FILE`), from options of the command line
(`--port 7712`), which win over the file, and while it runs from `CONFIG SET`. `CONFIG GET` shows them, `CONFIG REWRITE`
writes the present values back to the file and keeps its comments and order. `disqued.conf` holds every setting with its
default.

A line of the file is a directive and its value: `port 7711`. The case of a name means nothing; a comment starts with
`#` and has a line of its own; values with blanks or quotes stand in `"..."` (which knows
`\\n \\r \\t \\b \\a \\\\ \\" \\xHH`) or in `'...'`. Sizes are bytes or have a unit: `1k` is 1000, `1kb` is 1024, and so
`m`, `mb`, `g`, `gb`, in any case. Of a directive that is given twice the last line counts, with a warning. A directive
that does not exist or a value that is not allowed stops the start and is reported with its line.

In the path of a file, in `endpoint` and in `http-endpoint`, `${CREDENTIALS_DIRECTORY}` stands for the folder of the
credentials that systemd has loaded for the service (LoadCredential):
`requirepass-file ${CREDENTIALS_DIRECTORY}/disqued.requirepass`.

Directives marked *no effect yet* and *no effect* are accepted, so that files of Disque load, and each one that is given
is named in a warning at the start.
"""

Settings = Mapping[str, Setting[Any]]  #: by name, in the order of their declaration


def _groups_of(settings: Settings) -> Iterator[tuple[str, list[Setting[Any]]]]:
    """The headings, and the settings below each."""
    for heading, members in groupby(settings.values(), lambda setting: setting.group):
        yield heading, list(members)


def conf_text(settings: Settings) -> str:
    """The text of disqued.conf."""
    parts = [_CONF_HEAD]
    for group, members in _groups_of(settings):
        parts.append(f"# {f' {group} ':=^76}")
        parts += map(_conf_entry, members)
    return "\n\n".join(parts) + "\n"


def _conf_entry(setting: Setting[Any]) -> str:
    lines = [_conf_comment(_marked(setting, "No effect in this version", "No effect") + setting.doc)]
    lines.append(_conf_comment(_facts(setting)))
    lines.append(f"#{setting.name} {setting.example or setting.default_text}")
    return "\n".join(lines)


def _conf_comment(text: str) -> str:
    return textwrap.fill(
        text, 78, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
    )


def _marked(setting: Setting[Any], planned: str, obsolete: str) -> str:
    if setting.status is Status.LIVE:
        return ""
    return f"{planned if setting.status is Status.PLANNED else obsolete}: {setting.reason}. "


def _facts(setting: Setting[Any]) -> str:
    unit = f" Unit: {setting.unit}." if setting.unit else ""
    changed = "Can be changed by CONFIG SET." if setting.mutable else "Takes effect at the start only."
    return f"Allowed are {setting.kind.describe()}.{unit} {changed}"


def markdown_text(settings: Settings) -> str:
    """The text of docs/reference/configuration.md."""
    return "\n".join([_MARKDOWN_HEAD, *(_markdown_group(*group) for group in _groups_of(settings))])


def _markdown_group(group: str, members: Sequence[Setting[Any]]) -> str:
    rows = ["| Directive | Default | Unit | Changed by |", "|---|---|---|---|", *map(_markdown_row, members)]
    return "\n".join([f"## {group}", "", *rows, "", *map(_markdown_entry, members)])


def _markdown_row(setting: Setting[Any]) -> str:
    default = f"`{setting.default_text}`" if setting.default_text else "none"
    changed = "`CONFIG SET`" if setting.mutable else "restart"
    return f"| [`{setting.name}`](#{setting.name}) | {default} | {setting.unit} | {changed} |"


def _markdown_entry(setting: Setting[Any]) -> str:
    mark = _marked(setting, "*No effect yet*", "*No effect*")
    allowed = f"Allowed are {setting.kind.describe()}."
    paragraphs = [f"### {setting.name}", *(_markdown_paragraph(text) for text in (mark + setting.doc, allowed))]
    return "\n\n".join(paragraphs) + "\n"


def _markdown_paragraph(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)
