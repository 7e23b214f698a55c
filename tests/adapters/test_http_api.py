"""The JSON API on a whole daemon, over HTTP in memory."""

from collections.abc import Callable

from pytest_twisted import ensureDeferred

from tests.adapters.http import AdminClient

Admin = Callable[..., AdminClient]


@ensureDeferred
async def test_info_is_sections_of_fields(admin: Admin) -> None:
    status, headers, body = await admin().get("/api/info")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert body["server"]["disque_version"] == "1.0-rc1"
