"""The connection of `disqued cli`: words out, replies in the types that they were sent as.

    open --AUTH, HELLO 3--> send --words--> node --> receive (as long as it takes: commands may block)
      ^                      |
      +-- is_quiet? ---------+  a connection that was closed while nothing was asked is opened anew; a command whose
                                reply did not come is not sent twice: nobody knows whether it was done

Blocking; one command at a time.
"""

import select
import socket
import ssl
from collections.abc import Sequence
from io import BufferedReader
from typing import Any, Final, Literal, cast

import click
import hiredis

from disqued.client.errors import NotTrusted, ServerError, Uncertain, Unreachable, server_error
from disqued.tools.cli.replies import BadProtocol, Closed, Reply, ReplyKind, read_reply
from disqued.tools.connecting import Target

#: What a node without a password answers to one.
NEEDLESS: Final = b"no password is set"
#: 2, 3, or "try": 3 where the node has it.
Protocol = Literal[2, 3, "try"]


class Link:
    """A connection, which is opened when it is first needed."""

    def __init__(self, target: Target, protocol: Protocol = 2, *, warns: bool = True) -> None:
        """`warns`: people are told, once, of a password that the node does not need."""
        self.target = target
        self._warns = warns
        self._protocol = protocol
        self._socket: socket.socket | None = None
        self._replies: BufferedReader | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._socket is not None

    def open(self) -> None:
        """Connect, log in, and agree on the protocol.  Raises Unreachable, NotTrusted, ServerError."""
        self.close()
        opened = self.target.open_socket()
        self._socket, self._replies = opened, opened.makefile("rb")
        try:
            for greeting in self.target.access.greetings:
                self._greet(greeting)
            if self._protocol != 2:
                self._greet((b"HELLO", b"3"), may_fail=self._protocol == "try")
        except TimeoutError as error:
            self.close()
            raise Unreachable(self.target.away(error)) from None
        except Uncertain as error:
            self.close()
            raise Unreachable(str(error)) from None
        except BaseException:
            self.close()
            raise
        opened.settimeout(None)

    def _greet(self, words: Sequence[bytes], *, may_fail: bool = False) -> None:
        self.send(words)
        reply = self.receive()
        if reply.kind is not ReplyKind.ERROR or may_fail:
            return
        if words[0] != b"AUTH" or NEEDLESS not in reply.text:
            raise _error(reply)
        if self._warns:
            self._warns = False
            click.echo(f"disqued cli: {self.target} needs no password; the one that is given is not used", err=True)

    def call(self, words: Sequence[bytes]) -> Reply:
        """Send a command and wait for its reply, which may be an error.

        Raises Unreachable when it was not sent, Uncertain when no reply came, NotTrusted, ServerError by the login.
        """
        self.make_ready()
        try:
            self.send(words)
            return self.receive()
        except BaseException:  # an interrupt, too: what comes next would be the reply to this command
            self.close()
            raise

    def notice(self) -> None:
        """Close a connection whose other side has closed it."""
        if self.is_open and not self._is_quiet():
            self.close()

    def make_ready(self) -> bool:
        """See to it that there is a connection; True when it is a new one.  Raises as `open` does."""
        if self.is_open and self._is_quiet():
            return False
        self.open()
        return True

    def _is_quiet(self) -> bool:
        """Whether nothing has come since the last reply, not even the end of the connection."""
        assert self._socket is not None
        readable, _, _ = select.select([self._socket], [], [], 0)
        return not readable

    def send(self, words: Sequence[bytes]) -> None:
        """Send a command on the connection that there is.  Raises Uncertain."""
        assert self._socket is not None
        try:
            self._socket.sendall(hiredis.pack_command(cast("Any", tuple(words))))
        except TimeoutError:
            raise
        except OSError as error:
            raise self._broken(error) from error

    def receive(self) -> Reply:
        """Wait for the next reply.  Raises Uncertain, NotTrusted."""
        assert self._replies is not None
        try:
            return read_reply(self._replies)
        except TimeoutError:
            raise
        except (OSError, Closed, BadProtocol) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> Uncertain | NotTrusted:
        self.close()
        if isinstance(error, ssl.SSLError):
            from disqued.client.ssl_context import refusal

            return refusal(error) or Uncertain(self.target.broken(error))
        return Uncertain(self.target.broken(error))

    def close(self) -> None:
        if self._replies is not None:
            self._replies.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._replies = None


def _error(reply: Reply) -> ServerError:
    return server_error(reply.text.decode(errors="replace"))
