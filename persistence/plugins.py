"""Finding stores by name among the Twisted plugins."""

from twisted.plugin import getPlugins

from disqued.persistence.interface import IStoreFactory, StoreError


def find_store(name: str) -> IStoreFactory:
    """The store that the setting `persistence` means.  Raises StoreError."""
    factories = {factory.name: factory for factory in getPlugins(IStoreFactory)}
    if name not in factories:
        raise StoreError(f"no store is called '{name}'; installed are {', '.join(sorted(factories))}")
    return factories[name]
