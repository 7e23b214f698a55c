"""Terms and fates for tests: examples, and strategies that make any of them."""

from typing import Final

from hypothesis import strategies as st

from disqued.core.model.fate import NO_FATE, Failure, Fate, Word, last_failures
from disqued.core.model.terms import NO_TERMS, Terms

NODE_A, NODE_B = b"a" * 40, b"b" * 40
TERMS: Final = Terms(5, 10_000, 3_600_000, 86_400_000, 60_000, ((b"traceparent", b"00-ab-cd-01"), (b"kind", b"")))
FATE: Final = Fate(
    generation=2,
    is_dead=True,
    spent=10,
    is_cancelled=True,
    failures=(Failure(5, NODE_A, b"worker", b"no route"), Failure(7, NODE_B, b"", b"\xff\0")),
    progress=Word(8, NODE_A, b"50 %"),
    result=Word(9, NODE_B, b"done"),
    has_rivals=True,
)

_ids = st.sampled_from((NODE_A, NODE_B, b"c" * 40))
_times = st.integers(0, 9)
_texts = st.sampled_from((b"", b"timeout", b"\xff\0"))
failures = st.builds(Failure, _times, _ids, _texts, _texts)
words = st.none() | st.builds(Word, _times, _ids, _texts)
_some_fates = st.builds(
    Fate, st.integers(0, 3), st.booleans(), st.integers(0, 9), st.booleans(),
    st.lists(failures, max_size=7).map(tuple).map(last_failures), words, words, st.booleans(),
)  # fmt: skip
fates = st.just(NO_FATE) | _some_fates.map(lambda fate: NO_FATE if fate == NO_FATE else fate)
_spans = st.integers(0, 1 << 32)
_names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=9).map(str.encode)
headers = st.dictionaries(_names, st.binary(max_size=40), max_size=4).map(lambda found: tuple(found.items()))
groups = st.just(b"") | st.binary(max_size=255)
terms = st.just(NO_TERMS) | st.builds(
    Terms, st.integers(0, 65_535), _spans, _spans, _spans, _spans, headers, groups
).map(lambda found: NO_TERMS if found == NO_TERMS else found)  # fmt: skip
