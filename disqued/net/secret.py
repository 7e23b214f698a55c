"""The secret of the cluster: from the setting, or from the first line of a file.

Whoever reads the secret can join the cluster: see `privatefile`.
"""

from disqued.config import Config, as_bytes
from disqued.config_table import MAX_PASSWORD_BYTES
from disqued.privatefile import PrivateFileError, read_private


class SecretError(Exception):
    """The secret cannot be read, or is none; `str()` says what would do."""


def read_secret(config: Config) -> bytes:
    """Find out the secret; b"" = there is none.  Raises SecretError."""
    path = config.cluster_secret_file
    if path is None:
        return as_bytes(config.cluster_secret)
    try:
        text = read_private(path, MAX_PASSWORD_BYTES + 2)
    except PrivateFileError as error:
        raise SecretError(f"cluster-secret-file {error}") from None
    secret = text.partition(b"\n")[0].rstrip(b"\r")
    if not 0 < len(secret) <= MAX_PASSWORD_BYTES:
        raise SecretError(
            f"cluster-secret-file {path}: its first line has to be the secret, 1 to {MAX_PASSWORD_BYTES} bytes"
        )
    return secret
