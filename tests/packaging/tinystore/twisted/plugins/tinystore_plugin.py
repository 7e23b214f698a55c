"""What Twisted finds: no `__init__.py` beside it."""

from tinystore import TinyFactory

tiny = TinyFactory()
