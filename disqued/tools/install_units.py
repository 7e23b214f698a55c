"""`disqued install-units`: the units of systemd/, put where systemd looks, with the path of this very program.

    disqued.service disqued@.service disqued.socket   /etc/systemd/system, or PREFIX/lib/systemd/system
    disqued.sysusers disqued.tmpfiles                 /etc/sysusers.d, /etc/tmpfiles.d, as disqued.conf
    disqued.conf, a short one                         /etc/disqued, unless there is one

The last line of a file that was put in place is a checksum of the others.  So a later version takes the place of an
earlier one, and what somebody has changed is left alone: changes belong into drop-ins, which `systemctl edit` makes.

The units of a user (--user) are without what the manager of a user cannot do: other users, and most of the isolation.
"""

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

import attrs
import click

from disqued.tools.program import DONE, FAILED, MISUSED
from disqued.tools.running import complain

TOOL: Final = "install-units"
UNITS: Final = ("disqued.service", "disqued@.service", "disqued.socket")
CONFIG: Final = """\
# The settings of a node; `disqued --help` tells all of them.  Its data is where the unit says: --dir.
persistence aof
"""

PROGRAM: Final = "/usr/bin/disqued"  #: what the units of systemd/ name
MARK: Final = "# Put in place by disqued install-units; sha256 of the lines above: "
#: Folders that the units hide from the node.
HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - nothing is written there
#: Directives that only the manager of the system can follow.
OF_THE_SYSTEM: Final = re.compile(
    r"(Wants|After|User|Group|Slice|OOMScoreAdjust|CapabilityBoundingSet|AmbientCapabilities|Private\w+|Protect\w+"
    r"|ProcSubset|DevicePolicy|RemoveIPC|KeyringMode|LoadCredential)="
)


class InstallRefused(Exception):
    """Nothing is put in place; the text says why and what would do."""


@attrs.frozen
class UnitFile:
    """A file that is to be there."""

    path: Path
    text: str
    is_ours: bool = True  #: False: what is there already is kept, whatever it is

    @property
    def content(self) -> str:
        """The text, with its mark."""
        return f"{self.text}{MARK}{_digest(self.text)}\n" if self.is_ours else self.text

    def found(self) -> str | None:
        """What is there; None = nothing.  Raises OSError."""
        try:
            return self.path.read_bytes().decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return None

    def is_changed(self) -> bool:
        """Tell whether what is there was made, or changed, by somebody else.  Raises OSError."""
        found = self.found()
        if found is None or not self.is_ours or found == self.text:
            return False
        text, mark, digest = found.rpartition(MARK)
        return not mark or digest.strip() != _digest(text)

    def put(self) -> str:
        """See to it that it is there; returns what was done.  Raises OSError."""
        found = self.found()
        if found == self.content:
            return "is there already"
        if found is not None and not self.is_ours:
            return "is kept as it is"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_name(f".{self.path.name}.new")
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644 if self.is_ours else 0o640)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(self.content)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(self.path)
        finally:
            aside.unlink(missing_ok=True)
        return "written" if found is None else "replaced"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def shipped(name: str) -> str:
    """The text of a file of systemd/."""
    return (resources.files("disqued") / "systemd" / name).read_text(encoding="utf-8")


def for_user(text: str) -> str:
    """A unit as the manager of a user takes it."""
    kept: list[str] = []
    comments: list[str] = []  # of the directive that follows, if nothing but comments is between
    for line in text.splitlines():
        if line.startswith("#"):
            comments.append(line)
            continue
        if not OF_THE_SYSTEM.match(line):
            kept += [*comments, line]
        comments.clear()
    return "\n".join(kept).replace("WantedBy=multi-user.target", "WantedBy=default.target") + "\n"


def files_for_system(program: str, root: Path, prefix: Path | None) -> Iterator[UnitFile]:
    """What the manager of the system needs, below `root`; `prefix` is for those who make packages."""
    base = Path("/etc") if prefix is None else prefix / "lib"
    for name in UNITS:
        folder = "systemd/system"
        yield UnitFile(_below(root, base / folder / name), shipped(name).replace(PROGRAM, program))
    for kind in ("sysusers", "tmpfiles"):
        yield UnitFile(_below(root, base / f"{kind}.d" / "disqued.conf"), shipped(f"disqued.{kind}"))
    yield UnitFile(_below(root, Path("/etc/disqued/disqued.conf")), CONFIG, is_ours=False)


def files_for_user(program: str, root: Path, config_home: Path) -> Iterator[UnitFile]:
    """What the manager of a user needs."""
    for name in UNITS:
        text = for_user(shipped(name).replace(PROGRAM, program))
        yield UnitFile(_below(root, config_home / "systemd/user" / name), text)
    yield UnitFile(_below(root, config_home / "disqued/disqued.conf"), CONFIG, is_ours=False)


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _this_program() -> str:
    """The path of the console script that runs, or that lies beside the interpreter.  Raises Refused."""
    asked = Path(os.path.abspath(sys.argv[0]))
    for path in (asked, Path(sys.executable).with_name("disqued")):
        if path.name == "disqued" and os.access(path, os.X_OK):
            return str(path)
    raise InstallRefused("the path of the program is not known; name it with --program")


def _check(program: str, root: Path, *, user: bool) -> None:
    """Refuse a program that the units could not start.  Raises Refused."""
    if not re.fullmatch(r"/[\w./+@~-]+", program, re.ASCII):
        raise InstallRefused(
            f"--program {program!r}: allowed are absolute paths of letters, digits and any of . _ - + @ ~ /"
        )
    if not any(os.access(path, os.X_OK) and path.is_file() for path in (Path(program), _below(root, Path(program)))):
        raise InstallRefused(f"{program} is no program that can be run; name the one of disqued with --program")
    if user:
        return
    if folder := _hidden(program) or _hidden(os.path.realpath(program)):
        raise InstallRefused(
            f"{program} lies in {folder}, which the units hide from the node; install disqued elsewhere, such as"
            " /opt/disqued, or use --user"
        )
    python = os.path.realpath(_interpreter(program, root))
    if folder := _hidden(python):
        raise InstallRefused(
            f"{program} runs with the Python {python}, which lies in {folder}, and the units hide that from the node;"
            " make its virtual environment with a Python of the system, or use --user"
        )


def _hidden(path: str) -> str | None:
    """The folder, of those that the units hide, that a path lies in."""
    return next((folder for folder in HIDDEN if Path(path).is_relative_to(folder)), None)


def _interpreter(program: str, root: Path) -> str:
    """What a script names in its first line; for another program that of this very process, if it lies beside it."""
    for path in (_below(root, Path(program)), Path(program)):
        with contextlib.suppress(OSError), path.open("rb") as file:
            line = file.readline(4_096)
            if line.startswith(b"#!") and (words := os.fsdecode(line[2:]).split()):
                return words[0]
    return sys.executable if program == str(Path(sys.executable).with_name("disqued")) else program


def next_steps(*, user: bool) -> str:
    """What is left to do."""
    manager = "systemctl --user" if user else "systemctl"
    steps = [f"{manager} daemon-reload", f"{manager} enable --now disqued.socket disqued.service"]
    if not user:
        steps.insert(0, "systemd-sysusers && systemd-tmpfiles --create")
    lines = "".join(f"    {step}\n" for step in steps)
    return f"Next:\n{lines}Without disqued.socket the node opens its ports itself.\n"


@click.command(TOOL)
@click.option("--root", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), default="/", show_default=True,
              help="Put everything below this folder.")  # fmt: skip
@click.option("--prefix", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
              help="For packages: units in DIR/lib/systemd, not /etc.")  # fmt: skip
@click.option("--user", is_flag=True, help="For the systemd of this user, not that of the system.")
@click.option("--program", metavar="FILE", type=click.Path(), help="The program that the units start, if not this one.")
@click.option("--force", is_flag=True, help="Replace units that somebody has changed, too.")
def command(root: Path, prefix: Path | None, program: str | None, *, user: bool, force: bool) -> int:
    """Put the units of disqued where systemd finds them.

    Units that somebody has changed are left alone, and so is a configuration file that is there.
    docs/how-to/systemd.md tells what the units are and how to change them.

    \b
    Examples:
      disqued install-units
      disqued install-units --user
    """
    try:
        started = program or _this_program()
        _check(started, root, user=user)
        files = list(_wanted(started, root.absolute(), prefix, user=user))
    except InstallRefused as refusal:
        complain(TOOL, str(refusal))
        return MISUSED
    try:
        return _put(files, user=user, force=force)
    except OSError as error:
        complain(TOOL, f"{error.filename}: {error.strerror}")
        return FAILED


def _wanted(program: str, root: Path, prefix: Path | None, *, user: bool) -> Iterator[UnitFile]:
    if not user:
        if prefix is not None and not prefix.is_absolute():
            raise InstallRefused(f"--prefix {prefix}: allowed are absolute paths, such as /usr")
        return files_for_system(program, root, prefix)
    if prefix is not None:
        raise InstallRefused(
            "--prefix and --user do not go together: the units of a user lie in ~/.config/systemd/user"
        )
    # A relative one is to be ignored, says the standard.
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return files_for_user(program, root, home if home.is_absolute() else Path.home() / ".config")


def _put(files: Sequence[UnitFile], *, user: bool, force: bool) -> int:
    """Put all of them in place, or none.  Raises OSError."""
    changed = [str(file.path) for file in files if file.is_changed()]
    if changed and not force:
        complain(
            TOOL,
            f"somebody has changed {', '.join(changed)}; nothing is written. Move the changes to a drop-in (systemctl"
            " edit), then use --force",
        )
        return FAILED
    for file in files:
        sys.stdout.write(f"{file.path}: {file.put()}\n")
    sys.stdout.write(next_steps(user=user))
    return DONE
