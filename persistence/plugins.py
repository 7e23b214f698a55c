"""Finding stores by name among the Twisted plugins."""

from typing import Any

from twisted.plugin import getPlugins
from zope.interface import Invalid
from zope.interface.verify import verifyObject

from disqued.config import Config
from disqued.core.model.clock import Clock
from disqued.persistence.interface import IStore, IStoreFactory, StoreError


class UnknownStore(StoreError):
    """The setting `persistence` names no store that is installed."""


def find_store(name: str) -> IStoreFactory:
    """The store that the setting `persistence` means.  Raises UnknownStore."""
    factories = {factory.name: factory for factory in getPlugins(IStoreFactory)}
    if name not in factories:
        raise UnknownStore(f"no store is called '{name}'; installed are {', '.join(sorted(factories))}")
    return factories[name]


def make_store(name: str, config: Config, reactor: Any, clock: Clock) -> IStore:
    """Make the store of this name; nothing is opened yet.  Raises StoreError, also for one of another version."""
    store = find_store(name).create(config, reactor, clock)
    try:
        verifyObject(IStore, store)
    except Invalid as error:
        raise StoreError(f"the store '{name}' is not for this version of disqued: {error}") from error
    return store
