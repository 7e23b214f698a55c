"""Makes `twistd disqued` known; no `__init__.py` lies beside this file, so that Twisted's own package stays whole."""

from twisted.application.service import ServiceMaker

disqued = ServiceMaker(
    "disqued", "disqued.tap", "One node of a distributed, in-memory, replicated job queue.", "disqued"
)
