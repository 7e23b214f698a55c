"""The file of users: a line for each, as ACL LIST shows it.

    user default off
    user mailer on #5e884898da28... ~mail:* resetchannels -@all +@write +@read

Empty lines and those that begin with # say nothing, and are not kept when the file is written.  It is read as a whole
or not at all, and written beside its place, synced and renamed, so that a crash leaves the old file or the new one.
Who can read it can try passwords on their hashes at leisure, and who can write it makes himself whoever he likes: it is
written for its owner alone, and one that every user of the machine may read or write is refused.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from disqued.acl.rules import CommandCatalogue, RuleError, apply, is_name
from disqued.acl.user import User
from disqued.files import PrivateFileError, read_private, replace_file

FILE_MAX: Final = 8 << 20  #: bytes of the file
MODE: Final = 0o600
_GRAMMAR: Final = "allowed are lines of the word user, a name, and rules"


class AclFileError(Exception):
    """The file cannot be used; `str()` says which, where, and what would do."""


def load(path: Path, book: CommandCatalogue) -> list[User]:
    """Read the users of a file.  Raises AclFileError, which names the line."""
    try:
        data = read_private(path, FILE_MAX + 1)
    except PrivateFileError as error:
        raise AclFileError(f"aclfile {error}") from None
    if len(data) > FILE_MAX:
        raise AclFileError(f"aclfile {path}: it is too long; allowed are {FILE_MAX} bytes")
    return parse(data, path, book)


def parse(data: bytes, path: Path, book: CommandCatalogue) -> list[User]:
    """Read the text of a file.  Raises AclFileError."""
    users: dict[bytes, User] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        try:
            user = _user_of(words, book)
        except (RuleError, ValueError) as error:
            raise AclFileError(f"aclfile {path}, line {number}: {error}") from None
        if user.name in users:
            raise AclFileError(f"aclfile {path}, line {number}: this user has a line before; one is allowed")
        users[user.name] = user
    return list(users.values())


def _user_of(words: list[bytes], book: CommandCatalogue) -> User:
    """The user of a line.  Raises ValueError, RuleError."""
    if words[0] != b"user" or len(words) < 2:
        raise ValueError(f"this line defines no user; {_GRAMMAR}")
    if not is_name(words[1]):
        raise ValueError("the name is none; allowed are bytes without blanks")
    return apply(User(words[1]), words[2:], book)


def save(path: Path, users: Iterable[User]) -> None:
    """Write the users to a file.  Raises OSError."""
    replace_file(path, b"".join(user.line + b"\n" for user in users), mode=MODE)
