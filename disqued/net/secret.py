"""The secret of the cluster: from the setting, or from the first line of a file.

Whoever reads the secret can join the cluster, so a file that every user of the machine may read is refused.
"""

import os
import stat

from disqued.config import Config, as_bytes
from disqued.config_table import MAX_PASSWORD_BYTES


class SecretError(Exception):
    """The secret cannot be read, or is none; `str()` says what would do."""


def read_secret(config: Config) -> bytes:
    """Find out the secret; b"" = there is none.  Raises SecretError."""
    path = config.cluster_secret_file
    if path is None:
        return as_bytes(config.cluster_secret)
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            line = file.readline(MAX_PASSWORD_BYTES + 2)
    except OSError as error:
        raise SecretError(f"cluster-secret-file {path}: {error.strerror}") from None
    if mode & stat.S_IROTH:
        raise SecretError(
            f"cluster-secret-file {path}: every user of this machine may read it (mode {stat.S_IMODE(mode):o});"
            " allowed are modes such as 600 and 640"
        )
    secret = line.rstrip(b"\r\n")
    if not 0 < len(secret) <= MAX_PASSWORD_BYTES:
        raise SecretError(
            f"cluster-secret-file {path}: its first line has to be the secret, 1 to {MAX_PASSWORD_BYTES} bytes"
        )
    return secret
