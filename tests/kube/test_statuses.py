"""Status writes reach only the intended object, and conflicts are retried on the latest version."""

from collections import deque
from typing import Any

import orjson
import pytest

from app.kube.client import Client
from app.kube.clock import CONFLICT_ATTEMPTS
from app.kube.errors import Conflict
from app.kube.objects import ObjectMeta, Pod
from app.kube.resources import Resource
from app.kube.statuses import KnownStatus, newest_status, write_status
from app.kube.wire import Request, Response
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, status_body, virtual

SETS = Resource("apps.example.com", "v1", "things", "Thing", namespaced=False)
OWNER = ObjectMeta(name="a", uid="mine", resource_version="3")
KNOWN = KnownStatus({"count": 1}, "3")


class Server:
    """A transport that returns these responses in turn."""

    def __init__(self, *answers: Response) -> None:
        self.answers = deque(answers)
        self.requests: list[tuple[str, str, Any]] = []

    async def request(self, request: Request) -> Response:
        body = orjson.loads(request.body) if request.body else None
        self.requests.append((request.method, request.path.rpartition("/things/")[2], body))
        return self.answers.popleft()

    def stream(self, request: Request) -> Any:
        raise NotImplementedError(request)

    async def close(self) -> None:
        """Nothing to close."""


def _found(uid: str, version: str, **status: int) -> Response:
    return json_response(200, {"metadata": {"name": "a", "uid": uid, "resourceVersion": version}, "status": status})


def _refused(code: int, reason: str) -> Response:
    return json_response(code, status_body(code, reason))


async def _counted(server: Server, count: int) -> KnownStatus | None:
    def difference(present: Any) -> dict[str, int]:
        return {} if present.get("count") == count else {"count": count}

    return await write_status(Client(server, VirtualClock()), SETS, OWNER, KNOWN, difference)


@virtual
async def test_unchanged_statuses_are_not_sent() -> None:
    server = Server()
    assert await _counted(server, 1) is None
    assert not server.requests


@virtual
async def test_the_known_version_is_sent() -> None:
    server = Server(_found("mine", "4", count=2))
    assert await _counted(server, 2) == KnownStatus({"count": 2}, "4")
    assert server.requests == [("PATCH", "a/status", {"metadata": {"resourceVersion": "3"}, "status": {"count": 2}})]


@virtual
async def test_after_a_conflict_the_current_status_counts() -> None:
    server = Server(_refused(409, "Conflict"), _found("mine", "7", count=5, other=6), _found("mine", "8"))
    assert await _counted(server, 2) == KnownStatus({"count": 2, "other": 6}, "8")
    assert server.requests[-1] == ("PATCH", "a/status", {"metadata": {"resourceVersion": "7"}, "status": {"count": 2}})


@virtual
async def test_another_object_of_the_name_is_left_alone() -> None:
    server = Server(_refused(409, "Conflict"), _found("another", "7"))
    assert await _counted(server, 2) is None
    assert [method for method, *_ in server.requests] == ["PATCH", "GET"]


@virtual
async def test_a_deleted_object_needs_no_status() -> None:
    assert await _counted(Server(_refused(404, "NotFound")), 2) is None
    assert await _counted(Server(_refused(409, "Conflict"), _refused(404, "NotFound")), 2) is None


@virtual
async def test_a_persistent_conflict_is_raised() -> None:
    refused = [_refused(409, "Conflict"), _found("mine", "7", count=5)] * CONFLICT_ATTEMPTS
    server = Server(*refused)
    with pytest.raises(Conflict):
        await _counted(server, 2)
    assert [method for method, *_ in server.requests].count("PATCH") == CONFLICT_ATTEMPTS


@pytest.mark.parametrize(
    ("written", "newest"),
    [
        (None, KnownStatus({}, "3")),
        (KnownStatus({"count": 2}, "4"), KnownStatus({"count": 2}, "4")),
        (KnownStatus({"count": 2}, "3"), KnownStatus({}, "3")),
        (KnownStatus({"count": 2}, "2"), KnownStatus({}, "3")),
    ],
    ids=["nothing written", "not shown yet", "shown", "a later one shown"],
)
def test_a_written_status_counts_until_cached(written: KnownStatus | None, newest: KnownStatus) -> None:
    assert newest_status(Pod(metadata=OWNER, status=None), written) == newest  # type: ignore[arg-type]
