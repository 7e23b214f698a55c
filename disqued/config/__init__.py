"""The settings of one daemon: read, checked, changed while it runs, written back.

                                settings   every setting, declared once
                                   |
        +----------------+---------+---------+------------------+-----------------------+
      the file        options         CONFIG GET, SET     CONFIG REWRITE     disqued.conf, the reference page
    from_file    apply_arguments       matching, set         rewrite         python -m disqued.config conf | markdown

To add a setting, add an attribute in `settings`; everything above is derived from it.

    settings       the declarations             config              Config: the values of one daemon
    declaration    what a declaration is        combined            what several settings mean together
    kinds          types of values              checks              settings that do not fit together
    errors         errors about settings        reader              files, line by line, with includes
    quoting        words and quotes             rewrite             the new text of a file
    credentials    ${CREDENTIALS_DIRECTORY}     documents           disqued.conf and the reference page
                                                endpoint_strings    what Twisted's endpoint strings say

A line of the file is a directive and its value; the last one counts, and the command line wins over the file.  A
directive that this version does not act on is accepted, so that Disque's files load; each that is given adds a text to
`Config.warnings`.

Source: Disque 1.0-rc1, its CONFIG command; the declarations say where this daemon differs.
"""

from typing import Any, Final

from disqued.config.combined import BUS_PORT_OFFSET
from disqued.config.config import Config
from disqued.config.declaration import File, Section, Setting, Status, Value
from disqued.config.documents import conf_text, markdown_text
from disqued.config.errors import BadValue, ConfigError, NoConfigFile, NotMutable, UnknownDirective
from disqued.config.kinds import OutputLimit
from disqued.config.quoting import as_bytes, as_text
from disqued.config.settings import MAX_PASSWORD_BYTES, Settings

#: Every setting by its name, in the order in which people read them.
SETTINGS: Final[dict[str, Setting[Any]]] = dict(Settings.settings)

#: Names of settings whose value is a secret, or may hold one.
SECRETS: Final = tuple(name for name, setting in SETTINGS.items() if setting.secret)

__all__ = [
    "BUS_PORT_OFFSET", "MAX_PASSWORD_BYTES", "SECRETS", "SETTINGS", "BadValue", "Config", "ConfigError", "File",
    "NoConfigFile", "NotMutable", "OutputLimit", "Section", "Setting", "Settings", "Status", "UnknownDirective",
    "Value", "as_bytes", "as_text", "conf_text", "markdown_text",
]  # fmt: skip
