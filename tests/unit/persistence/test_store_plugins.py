"""Stores of other packages: one that lacks something of this version is refused by what it lacks."""

from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import pytest
from zope.interface import implementer

from disqued.config import Config
from disqued.persistence import plugins
from disqued.persistence.interface import IStore, StoreError
from disqued.persistence.null import NullStore
from disqued.testing.clock import Clock


@implementer(IStore)
class OldStore(NullStore):
    """A store that was made before stores had to look for their files."""

    look = None  # type: ignore[assignment]


class Factory:
    """Makes stores of a class."""

    name = "old"

    def __init__(self, store: Callable[[], object]) -> None:
        self._store = store

    def create(self, *_: object) -> object:
        """Make one."""
        return self._store()


def make(store: Callable[[], object]) -> IStore:
    with mock.patch.object(plugins, "getPlugins", return_value=[Factory(store)]):
        return plugins.make_store("old", Config(), cast(Any, None), cast(Any, None))


def test_a_store_that_has_everything_is_made() -> None:
    assert isinstance(make(lambda: NullStore(Config(), clock=Clock())), NullStore)


def test_a_store_of_another_version_is_refused_by_what_it_lacks() -> None:
    with pytest.raises(StoreError, match=r"the store 'old' is not for this version of disqued: .*look"):
        make(lambda: OldStore(Config(), clock=Clock()))
