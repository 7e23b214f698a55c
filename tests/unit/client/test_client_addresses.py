"""How programs name nodes, and what they say of passwords and TLS with that."""

import traceback
from pathlib import Path

import pytest

from disqued.client import Tls
from disqued.client.addresses import Address, Named, Socket, read_nodes, written
from disqued.client.tls import is_refusal


def read(*nodes: Named, **more: object) -> list[Address]:
    addresses, _ = read_nodes(nodes, **more)
    return addresses


@pytest.mark.parametrize(
    ("named", "address"),
    [
        ("host", ("host", 7711)),
        ("host:1", ("host", 1)),
        ("host:", ("host", 7711)),
        ("[::1]:99", ("::1", 99)),
        ("[::1]", ("::1", 7711)),
        (("host", 5), ("host", 5)),
        (("::1", 5), ("::1", 5)),
        ("disqued://host", ("host", 7711)),
        ("redis://host:1/", ("host", 1)),
        ("redis://host:1/0", ("host", 1)),
        ("DISQUEDS://[::1]:5", ("::1", 5)),
        ("rediss://Host", ("Host", 7711)),
        ("unix:///run/disqued.sock", Socket("/run/disqued.sock")),
        ("unix://:pw@/run/a%20b", Socket("/run/a b")),
    ],
)
def test_a_node_is_named_in_many_ways(named: Named, address: Address) -> None:
    assert read(named) == [address]


@pytest.mark.parametrize(
    ("nodes", "addresses"),
    [
        ("host:1", [("host", 1)]),
        (("host", 1), [("host", 1)]),
        (["a", ("b", 2), "redis://c:3"], [("a", 7711), ("b", 2), ("c", 3)]),
        (("a", "b"), [("a", 7711), ("b", 7711)]),
        ({"a": 1}, [("a", 7711)]),
    ],
)
def test_one_node_may_be_named_without_a_list(nodes: Named, addresses: list[Address]) -> None:
    assert read_nodes(nodes)[0] == addresses


@pytest.mark.parametrize(
    "named",
    ["", ":1", "host:x", "host:0", "host:65536", "host:²", "[::1]1", "::1", "a b", ("host", 0), ("host", True, 1),
     ("", 1), ("host",), 5, b"host", None, "redis://", "redis://:1", "redis://host:x"],
)  # fmt: skip
def test_what_is_no_address_is_refused(named: Named) -> None:
    with pytest.raises(ValueError, match="is no address of a node; the forms are disqued://host:port"):
        read(named)


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("http://host", "'http://host' names no node; the forms are"),
        ("redis://host/3", "'redis://host/3' names a database, and a node has only the one: 0"),
        ("redis://ann@host", "'redis://host' names a user without a password"),
        ("redis://host?ca=/x", "is not by TLS, so that nothing may stand behind"),
        ("unix:///s?ca=/x", "is not by TLS, so that nothing may stand behind"),
        ("redis://host#x", "has a '#'"),
        ("unix://run/s", "'unix://run/s' is no path of a socket: .* has three slashes"),
        ("unix:///", "no path of a socket"),
        ("redis://[::1", "cannot be read"),
        ("rediss://host?cert=/x", "'cert' behind the URL of a node; ca, certificate, .* are allowed"),
        ("rediss://host?ca=", "ca behind the URL of a node is empty"),
        ("rediss://host?check_host_name=0", "check_host_name is '0'; yes and no are allowed"),
        ("rediss://host?key=/x", "a key of TLS without its certificate"),
    ],
)
def test_what_is_wrong_with_a_url_is_told(named: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read(named)


@pytest.mark.parametrize("nodes", [[], ()])
def test_a_client_without_a_node_is_refused(nodes: list[Named]) -> None:
    with pytest.raises(ValueError, match="no node is named"):
        read_nodes(nodes)


def test_what_is_no_list_of_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="5 are no nodes"):
        read_nodes(5)


@pytest.mark.parametrize(
    ("nodes", "more", "login"),
    [
        ("host", {}, ()),
        ("host", {"password": "x"}, (b"AUTH", b"x")),
        ("host", {"password": b"\xff", "username": "ann"}, (b"AUTH", b"ann", b"\xff")),
        ("host", {"password": "", "username": None}, ()),
        ("redis://:p%40%2F%C3%A4@host", {}, (b"AUTH", "p@/ä".encode())),
        ("redis://default:x@host", {}, (b"AUTH", b"default", b"x")),
        ("redis://:@host", {}, ()),
        (["redis://:x@a", "redis://b", "redis://:x@c"], {"password": b"x"}, (b"AUTH", b"x")),
        ("unix://:x@/s", {}, (b"AUTH", b"x")),
    ],
)
def test_a_password_is_the_one_of_all_nodes(nodes: Named, more: dict[str, object], login: tuple[bytes, ...]) -> None:
    _, access = read_nodes(nodes, more.get("username"), more.get("password"))  # type: ignore[arg-type]
    assert access.greetings == ((login,) if login else ())


def test_connections_may_have_a_name_which_comes_after_the_password() -> None:
    _, access = read_nodes("redis://:x@a", client_name="press-1")
    assert access.greetings == ((b"AUTH", b"x"), (b"CLIENT", b"SETNAME", b"press-1"))
    for name in ("press 1", "ä", b"\n"):
        with pytest.raises(ValueError, match=r"client_name is .*; letters, digits and signs of ASCII are allowed"):
            read_nodes("a", client_name=name)


def test_two_passwords_are_refused() -> None:
    for nodes, more in ((["redis://:x@a", "redis://:y@b"], {}), (["redis://:x@a"], {"password": "y"})):
        with pytest.raises(ValueError, match="two passwords or users are given"):
            read(*nodes, **more)
    with pytest.raises(ValueError, match="a username is given without a password"):
        read("a", user="ann")
    with pytest.raises(ValueError, match="password is 5, and has to be bytes or text"):
        read("a", password=5)


@pytest.mark.parametrize(
    "named",
    ["redis://:sesame/x@host", "redis://:sesame#x@host", "redis://:sesame?x@host", "http://:sesame@host",
     "redis://:sesame@host/3", "redis://:sesame@host:x", "redis://ann:sesame@[::1", "unix://:sesame@x/s",
     "ann:sesame@host", "redis://:sesame@host?ca=1"],
)  # fmt: skip
def test_a_password_is_in_no_error(named: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read(named)
    assert "sesame" not in "".join(traceback.format_exception(caught.value))


def test_a_password_is_in_no_repr() -> None:
    _, access = read_nodes("redis://:sesame@host")
    assert "sesame" not in repr(access)
    assert "sesame" not in repr(Tls(certificate="/c", key_password="sesame"))


def test_all_nodes_are_reached_by_tls_or_none() -> None:
    assert read_nodes("redis://a")[1].tls is None
    assert read_nodes(["rediss://a", "disqueds://b", "c"])[1].tls == Tls()
    assert read_nodes(["a", "unix:///s"], tls=Tls(ca="/x"))[1].tls == Tls(ca="/x")
    assert read_nodes(["unix:///s", "rediss://a"])[1].tls == Tls()
    with pytest.raises(ValueError, match="by TLS and without it; all have to be reached alike"):
        read("rediss://a", "redis://b")
    with pytest.raises(ValueError, match="`tls` is given, and a URL without TLS"):
        read("redis://b", tls=Tls())


def test_what_tls_needs_may_stand_behind_a_url() -> None:
    url = "rediss://a?ca=/ca&certificate=/c&key=/k&key_password=x&host_name=b"
    tls = Tls(ca="/ca", certificate="/c", key="/k", key_password="x", host_name="b")
    assert read_nodes([url, "rediss://b", url])[1].tls == tls
    assert read_nodes("rediss://a?check_host_name=no&ca=/ca")[1].tls == Tls(ca=Path("/ca"), check_host_name=False)
    with pytest.raises(ValueError, match="by TLS, differently"):
        read(url, "rediss://b?ca=/other")
    with pytest.raises(ValueError, match="twice: as `tls`, and behind a URL"):
        read(url, tls=tls)


def test_words_of_tls_that_do_not_fit_together_are_refused() -> None:
    for words, text in (
        ({"key": "/k"}, "a key of TLS without its certificate"),
        ({"host_name": "a", "check_host_name": False}, "host_name of TLS is given, and not to be looked at"),
        ({"host_name": ""}, "host_name of TLS is empty"),
        ({"ca": 5}, "5 is no path of a file"),
    ):
        with pytest.raises(ValueError, match=text):
            Tls(**words)  # type: ignore[arg-type]


@pytest.mark.parametrize("named", ["host:1", "[::1]:1", "unix:///s"])
def test_an_address_is_written_as_it_may_be_named(named: str) -> None:
    assert written(*read(named)) == named


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("TLS: tlsv13 alert certificate required", True),
        ("tls: sslv3 alert bad certificate", True),
        ("tls: tlsv1 alert unknown ca", True),
        ("tls: tlsv1 alert access denied", True),
        ("tls: tlsv1 alert internal error", False),
        ("tls: sslv3 alert bad record mac", False),
        ("tls: certificate verify failed", False),
    ],
)
def test_only_a_refused_certificate_says_that_nothing_was_done(words: str, expected: bool) -> None:
    assert is_refusal(words) is expected
