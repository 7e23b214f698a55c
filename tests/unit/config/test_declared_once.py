"""A setting is declared once: all that people see of it follows from one attribute of a section."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from disqued.config import SETTINGS, BadValue, Config, File, NotMutable, Section, Settings, Status, Value
from disqued.config.documents import conf_text, markdown_text
from disqued.config.errors import UnknownDirective
from disqued.config.kinds import FilePath, Size, Text, WholeNumber

PACKAGE = Path(__file__).resolve().parents[3] / "disqued"

#: Stands for what a developer adds to `disqued/config/settings.py`, and to no other file.
DECLARATION = '''

class Spare(Section):
    """Settings that exist in a test alone."""

    heading = "Spare parts"

    spare_time = Value(
        WholeNumber(0, 60), 5, "Time that nobody needs. It is there for a test.", unit="seconds", mutable=True
    )

'''

#: Looks at the new setting wherever settings are seen, in a process that has the declaration.
LOOK = r"""
import sys
from pathlib import Path
from disqued.config import SETTINGS, Config, conf_text, markdown_text
from disqued.net.process.settings import LiveSettings
from disqued.tap import Options
from disqued.tools.program import daemon_options, values_of

file = Path(sys.argv[1], "disqued.conf")
file.write_text("# mine\nspare-time 6\n")
config = Config.from_file(file)
assert config.spare_time == 6
options = Options()
options.parseOptions(["--spare-time", "7", "--config", str(file)])
assert options.settings.spare_time == 7
assert "Time that nobody needs. [default: 5]" in " ".join(str(Options()).split())
assert ("--spare-time", "Time that nobody needs.") in list(daemon_options())
assert config.matching("spare*") == [("spare-time", "6")]
LiveSettings(config).change(b"SPARE-TIME", b"8")
assert config.spare_time == 8
config.rewrite()
assert file.read_text().startswith("# mine\nspare-time 8\n")
assert "= Spare parts =" in conf_text(SETTINGS)
assert "#spare-time 5\n" in conf_text(SETTINGS)
assert "| [`spare-time`](#spare-time) | `5` | seconds | `CONFIG SET` |" in markdown_text(SETTINGS)
print(SETTINGS["spare-time"].group)
"""


class Spare(Section):
    """Settings that exist in a test alone."""

    heading = "Spare parts"

    spare_time = Value(WholeNumber(0, 60), 5, "Time that nobody needs.", unit="seconds", mutable=True)
    spare_room = Value(Size(), 0, "Room that nobody needs.")
    spare_key = Value(Text(8), "", "A key under the mat.", mutable=True, secret=True)
    spare_file = File(FilePath(), "", "A file that nobody reads.")


class Extended(Config, Spare):
    """The settings of a daemon that has some more."""


def edited(folder: Path) -> Path:
    """A tree in which one file is another: that of the declarations has one more."""
    package = folder / "disqued"
    (package / "config").mkdir(parents=True)
    for file in PACKAGE.iterdir():
        if file.name != "config":
            (package / file.name).symlink_to(file.resolve())
    for file in (PACKAGE / "config").glob("*.py"):
        (package / "config" / file.name).write_text(file.read_text())
    settings = package / "config" / "settings.py"
    before, bases, after = settings.read_text().partition("\n\nclass Settings(\n    ")
    settings.write_text(before + DECLARATION + bases + "Spare, " + after)
    return folder


def test_one_declaration_is_seen_in_file_options_help_config_and_documents(tmp_path: Path) -> None:
    tree = edited(tmp_path / "tree")
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOOK, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "Spare parts\n"), done.stderr


def test_a_class_that_inherits_sections_has_the_settings_of_all_in_their_order() -> None:
    assert list(Extended.settings) == [*SETTINGS, "spare-time", "spare-room", "spare-key", "spare-file"]
    assert dict(Config.settings) == dict(Settings.settings) == SETTINGS
    assert {setting.group for setting in Spare.settings.values()} == {"Spare parts"}


def test_a_declared_setting_is_read_shown_changed_and_documented() -> None:
    config = Extended.from_text("spare-time 6\nspare-room 1kb\nspare-file f")
    config.apply_arguments([("--spare-room", "2kb")])
    assert (config.spare_time, config.spare_room, config.spare_file) == (6, 2048, Path.cwd() / "f")
    assert Extended().spare_file is None
    seen: list[int] = []
    config.subscribe("spare-time", seen.append)
    config.set("Spare-Time", "7")
    assert seen == [7]
    assert config.matching("spare-t*") == [("spare-time", "7")]
    assert "#spare-room 0\n" in conf_text(Extended.settings)
    assert "## Spare parts\n" in markdown_text(Extended.settings)


def test_what_a_declaration_forbids_is_refused_by_its_name() -> None:
    config = Extended.from_text("")
    with pytest.raises(BadValue, match="spare-time 61: allowed are whole numbers from 0 to 60"):
        config.set("spare-time", "61")
    with pytest.raises(NotMutable, match="spare-room"):
        config.set("spare-room", "1")
    with pytest.raises(UnknownDirective, match="did you mean spare-time"):
        config.set("spare-tim", "1")
    with pytest.raises(UnknownDirective):
        Config().set("spare-time", "1")


def test_the_value_of_a_setting_declared_secret_is_in_no_error() -> None:
    with pytest.raises(BadValue) as caught:
        Extended.from_text("").set("spare-key", "too long a key")
    assert str(caught.value) == "spare-key (redacted): allowed are texts of at most 8 bytes"


def test_every_secret_setting_hides_its_value() -> None:
    secret = {name for name, setting in SETTINGS.items() if setting.secret}
    assert secret == {"requirepass", "cluster-secret", "redis-url"}
    for name, setting in SETTINGS.items():
        assert (setting.shown("value") == "value") == (name not in secret)
        assert setting.shown("") == ""
    assert all(setting.status is Status.LIVE for setting in SETTINGS.values() if setting.secret)
