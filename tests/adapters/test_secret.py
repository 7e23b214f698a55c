"""Where the secret of the cluster comes from."""

from pathlib import Path

import pytest

from disqued.config import Config
from disqued.net.secret import SecretError, read_secret


def written(folder: Path, content: bytes, mode: int = 0o600) -> Config:
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return Config.from_text(f"dir {folder}\ncluster-secret-file secret")


def test_without_a_setting_there_is_no_secret() -> None:
    assert read_secret(Config()) == b""


def test_the_setting_is_the_secret() -> None:
    assert read_secret(Config.from_text("cluster-secret caf\u00e9")) == "caf\u00e9".encode()


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640])
def test_the_first_line_of_the_file_is_the_secret(tmp_path: Path, mode: int) -> None:
    assert read_secret(written(tmp_path, b"  open sesame \r\nthe rest\n", mode)) == b"  open sesame "


def test_a_line_without_an_end_is_one_too(tmp_path: Path) -> None:
    assert read_secret(written(tmp_path, b"x" * 512)) == b"x" * 512


@pytest.mark.parametrize("content", [b"", b"\nsecond", b"x" * 513 + b"\n"])
def test_a_first_line_that_is_no_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SecretError, match="first line has to be the secret, 1 to 512 bytes"):
        read_secret(written(tmp_path, content))


def test_a_file_that_every_user_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match=r"mode 604.*such as 600 and 640"):
        read_secret(written(tmp_path, b"secret\n", 0o604))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match=f"cluster-secret-file {tmp_path}/none: No such file"):
        read_secret(Config.from_text(f"dir {tmp_path}\ncluster-secret-file none"))
