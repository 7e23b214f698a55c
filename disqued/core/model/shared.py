"""Objects that very many jobs share: their options, and the sets of their holders."""

from disqued.core.model.fate import NO_FATE, ONLY_CANCELLED, Fate
from disqued.core.model.job import KIND_WORK, JobOptions
from disqued.core.model.terms import NO_TERMS, Terms

DEAD_TTL_MS = 7 * 86_400_000
OPTIONS_KEPT = 1_024  #: distinct `JobOptions` remembered
HOLDER_SETS_KEPT = 1_024  #: distinct sets of holders remembered


class Shared:
    """One object for each value."""

    __slots__ = ("_cancelled", "_holder_sets", "_node_id", "_options", "_others", "dead_ttl_ms")

    def __init__(self, node_id: bytes) -> None:
        self._node_id = node_id
        self.dead_ttl_ms: int = DEAD_TTL_MS  #: stay of a dead job whose producer did not say (`dead-ttl`)
        self._options: dict[tuple[int, int, int, int, int, Terms], JobOptions] = {}
        self._cancelled: dict[tuple[int, int, int, int, int, Terms], JobOptions] = {}  #: of cancelled jobs
        self._holder_sets: dict[frozenset[bytes], frozenset[bytes]] = {}
        self._others: dict[frozenset[bytes], tuple[bytes, ...]] = {}

    def options(
        self, ttl_ms: int, retry_ms: int, delay_ms: int, replicate: int, kind: int = KIND_WORK, *,
        terms: Terms = NO_TERMS, fate: Fate = NO_FATE,
    ) -> JobOptions:  # fmt: skip
        """Return the options object for these values: a shared one, unless there are headers or a fate among them.

        Jobs that were cancelled, and nothing else, share theirs: a purge ends very many.
        """
        table = self._options
        if fate is not NO_FATE and fate == ONLY_CANCELLED:
            fate, table = ONLY_CANCELLED, self._cancelled
        if terms.headers or (fate is not NO_FATE and fate is not ONLY_CANCELLED):
            return JobOptions(
                ttl_ms=ttl_ms, retry_ms=retry_ms, delay_ms=delay_ms, replicate=replicate, kind=kind, terms=terms,
                fate=fate,
            )  # fmt: skip
        wishes = (ttl_ms, retry_ms, delay_ms, replicate, kind, terms)
        options = table.get(wishes)
        if options is None:
            if len(table) >= OPTIONS_KEPT:
                table.clear()
            options = table[wishes] = JobOptions(
                ttl_ms=ttl_ms, retry_ms=retry_ms, delay_ms=delay_ms, replicate=replicate, kind=kind, terms=terms,
                fate=fate,
            )  # fmt: skip
        return options

    def holders(self, node_ids: frozenset[bytes]) -> frozenset[bytes]:
        """Return the one object for a set of nodes: a cluster has few such sets, and very many jobs."""
        known = self._holder_sets.get(node_ids)
        if known is None:
            if len(self._holder_sets) >= HOLDER_SETS_KEPT:
                self._holder_sets.clear()
            known = self._holder_sets[node_ids] = node_ids
        return known

    def others(self, holders: frozenset[bytes]) -> tuple[bytes, ...]:
        """Return the nodes of a set except this one, in order."""
        others = self._others.get(holders)
        if others is None:
            if len(self._others) >= HOLDER_SETS_KEPT:
                self._others.clear()
            others = self._others[holders] = tuple(sorted(holders - {self._node_id}))
        return others

    def forget_holders(self) -> None:
        """Forget the sets, which no job uses any more."""
        self._holder_sets.clear()
        self._others.clear()
