"""What a client listens to: channels and patterns are told apart, and each takes memory once."""

from disqued.net.clients.subscription_set import SUBSCRIPTION_COST, SubscriptionSet


def test_a_name_counts_once_as_a_channel_and_once_as_a_pattern() -> None:
    own = SubscriptionSet()
    for patterns in (False, True, True):
        own.add(b"wq:q", patterns=patterns)
    assert len(own) == 2
    assert own.name_bytes == 8
    assert own.size == 2 * (SUBSCRIPTION_COST + 4)
    assert own.remove(b"wq:q", patterns=True)
    assert not own.remove(b"wq:q", patterns=True)
    assert list(own.of(patterns=False)) == [b"wq:q"]
    assert own.size == SUBSCRIPTION_COST + 4
