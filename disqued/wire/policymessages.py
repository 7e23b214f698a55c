"""The message about policies as bytes; `messages` says how messages are written, `jobdump` how a policy is."""

from struct import Struct
from typing import Final

from disqued.core.model.messages import POLICIES_PER_MESSAGE, POLICY, Message
from disqued.wire.fields import BadMessage, Codec, Fields, ends_at, need
from disqued.wire.jobdump import decode_policy, encode_policy

_POLICIES = Struct("<BIH")


def _encode(message: Fields, now: int) -> bytes:
    kind, number, policies = message
    return _POLICIES.pack(kind, number, len(policies)) + b"".join(map(encode_policy, policies))


def _decode(data: bytes) -> Message:
    need(data, _POLICIES.size)
    kind, number, count = _POLICIES.unpack_from(data)
    if count > POLICIES_PER_MESSAGE:
        raise BadMessage(f"POLICY: {count} policies; allowed are {POLICIES_PER_MESSAGE}")
    policies = []
    at = _POLICIES.size
    for _ in range(count):
        policy, at = decode_policy(data, at)
        if not policy[2].counter:
            raise BadMessage("POLICY: a register with the counter 0; allowed are 1 and more")
        policies.append(policy)
    ends_at(data, at)
    return (kind, number, tuple(policies))


CODECS: Final[dict[int, Codec]] = {
    POLICY: Codec("number 4, policies 2; for each: a policy as in `jobdump`", _encode, _decode),
}
