"""The secret of the cluster and the password of clients: from a setting, or from the first line of a file.

Whoever reads the secret can join the cluster: see `privatefile`.  The file of the password is read anew at SIGHUP.
"""

from pathlib import Path

from twisted.logger import Logger

from disqued.config import MAX_PASSWORD_BYTES, Config, as_bytes, as_text
from disqued.files import PrivateFileError, read_private

log = Logger()


class SecretError(Exception):
    """The secret cannot be read, or is none; `str()` says what would do."""


def read_secret(config: Config) -> bytes:
    """Find out the secret of the cluster; b"" = there is none.  Raises SecretError."""
    path = config.cluster_secret_file
    if path is None:
        return as_bytes(config.cluster_secret)
    return _first_line(path, "cluster-secret-file", "the secret")


def read_password(config: Config) -> None:
    """Let clients give the password that requirepass-file holds, if there is one.  Raises SecretError."""
    path = config.requirepass_file
    if path is not None:
        config.use_password(as_text(_first_line(path, "requirepass-file", "the password")))


def renew_password(config: Config) -> None:
    """Read it anew, and say what came of it; what cannot be read changes nothing."""
    before = config.password_digest
    try:
        read_password(config)
    except SecretError as error:
        log.error("SIGHUP: the password stays as it is: {reason}", reason=str(error))
        return
    if config.password_digest != before:
        log.info("SIGHUP: the password of clients has changed; who is authenticated stays so")


def _first_line(path: Path, setting: str, what: str) -> bytes:
    try:
        text = read_private(path, MAX_PASSWORD_BYTES + 2)
    except PrivateFileError as error:
        raise SecretError(f"{setting} {error}") from None
    line = text.partition(b"\n")[0].rstrip(b"\r")
    if not 0 < len(line) <= MAX_PASSWORD_BYTES:
        raise SecretError(f"{setting} {path}: its first line has to be {what}, 1 to {MAX_PASSWORD_BYTES} bytes")
    return line
