"""What an endpoint string says, before it is listened at."""

import pytest

from disqued.config.endpoint_strings import is_local, kind, parameter, wants_certificates, without


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ssl:1:certKey=a", "a"),
        ("ssl:1:certKey=a:interface=b", "a"),
        (r"ssl:1:certKey=a\:b\\c=d:interface=x", r"a:b\c=d"),
        ("ssl:1:certKey=", ""),
        ("certKey=a", None),  # that is the kind
        ("ssl:1:xcertKey=a", None),
        (r"ssl:1:x=\:certKey=a", None),
        ("", None),
    ],
)
def test_a_parameter_is_read_with_what_is_quoted_in_it(text: str, found: str | None) -> None:
    assert parameter(text, "certKey") == found


def test_the_kind_is_the_first_word() -> None:
    assert [kind(text) for text in ("tcp:1", "unix:/a:b", "tcp", "")] == ["tcp", "unix", "tcp", ""]


def test_parameters_are_left_out_and_the_rest_stays_as_it_was_written() -> None:
    assert without(r"ssl:1:caCerts=a\:b:certKey=c\:d:clientAuth=yes", "caCerts", "clientAuth") == r"ssl:1:certKey=c\:d"


@pytest.mark.parametrize(
    "text", ["unix:/a", "tcp:1:interface=127.0.0.1", "ssl:1:interface=127.3.2.1:x=y", r"tcp6:1:interface=\:\:1"]
)
def test_what_only_this_machine_reaches_is_known(text: str) -> None:
    assert is_local(text)


@pytest.mark.parametrize(
    "text",
    [
        *("tcp:1", "tcp:1:interface=", "tcp:1:interface=0.0.0.0", "tcp:1:interface=localhost", "systemd:index=0"),
        *(
            r"tcp6:1:interface=\:\:",
            "haproxy:tcp:1:interface=127.0.0.1",
            "",
            "unixx:/a",
            r"tcp:1:x=\:interface=127.0.0.1",
        ),
    ],
)
def test_whatever_else_may_be_reached_from_elsewhere(text: str) -> None:
    assert not is_local(text)


def test_certificates_are_wanted_where_an_authority_is_named_and_nothing_takes_that_back() -> None:
    assert wants_certificates("ssl:1:caCerts=ca")
    assert wants_certificates("ssl:1:clientAuth=yes:caCerts=ca")
    for text in ("ssl:1", "ssl:1:caCerts=", "ssl:1:caCerts=ca:clientAuth=optional", "tcp:1:caCerts=ca"):
        assert not wants_certificates(text)
