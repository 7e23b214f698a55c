"""Where the secret of the cluster and the password of clients come from."""

from pathlib import Path

import pytest
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from disqued.config import MAX_PASSWORD_BYTES, Config
from disqued.net.process.secrets import SecretError, read_password, read_secret, renew_password


def written(folder: Path, content: bytes, mode: int = 0o600, *, setting: str = "cluster-secret-file") -> Config:
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return Config.from_text(f"dir {folder}\n{setting} secret")


def after_sighup(config: Config) -> list[str]:
    """Renew the password; returns what the log tells."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    renew_password(config)
    globalLogPublisher.removeObserver(observe)
    return lines


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


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o606])
def test_a_file_that_every_user_may_write_is_refused_too(tmp_path: Path, mode: int) -> None:
    with pytest.raises(SecretError, match=f"mode {mode:o}"):
        read_secret(written(tmp_path, b"secret\n", mode))


def test_without_a_file_the_password_stays_that_of_the_setting() -> None:
    config = Config.from_text("requirepass sesame")
    before = config.password_digest
    read_password(config)
    assert config.password_digest == before != b""


@pytest.mark.parametrize("password", [b"s", b"caf\xc3\xa9", b"\xff\xfe", b"x" * MAX_PASSWORD_BYTES])
def test_clients_give_the_first_line_of_the_password_file(tmp_path: Path, password: bytes) -> None:
    config = written(tmp_path, password + b"\r\nmore", setting="requirepass-file")
    read_password(config)
    same = Config()
    same.use_password(password.decode("utf-8", "surrogateescape"))
    assert config.password_digest == same.password_digest != b""


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * (MAX_PASSWORD_BYTES + 1)])
def test_a_password_file_without_a_password_is_refused(tmp_path: Path, content: bytes) -> None:
    config = written(tmp_path, content, setting="requirepass-file")
    with pytest.raises(SecretError, match="its first line has to be the password, 1 to 512 bytes"):
        read_password(config)


def test_the_password_is_read_again_and_the_log_tells_of_a_change_alone(tmp_path: Path) -> None:
    config = written(tmp_path, b"first\n", setting="requirepass-file")
    read_password(config)
    first = config.password_digest
    assert after_sighup(config) == []
    assert config.password_digest == first
    (tmp_path / "secret").write_bytes(b"second\n")
    (line,) = after_sighup(config)
    assert line.startswith("SIGHUP: the password of clients has changed")
    second = config.password_digest
    assert second != first
    (tmp_path / "secret").write_bytes(b"")
    (line,) = after_sighup(config)
    assert line.startswith("SIGHUP: the password stays as it is: requirepass-file ")
    assert config.password_digest == second
