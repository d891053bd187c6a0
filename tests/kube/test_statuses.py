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


def _sent(version: str, count: int) -> tuple[str, str, Any]:
    return ("PATCH", "a/status", {"metadata": {"resourceVersion": version}, "status": {"count": count}})


CONFLICT, GONE, READ = _refused(409, "Conflict"), _refused(404, "NotFound"), ("GET", "a", None)


@pytest.mark.parametrize(
    ("count", "answers", "written", "sent"),
    [
        (1, [], None, []),
        (2, [_found("mine", "4", count=2)], KnownStatus({"count": 2}, "4"), [_sent("3", 2)]),
        (
            2,
            [CONFLICT, _found("mine", "7", count=5, other=6), _found("mine", "8")],
            KnownStatus({"count": 2, "other": 6}, "8"),
            [_sent("3", 2), READ, _sent("7", 2)],
        ),
        (2, [CONFLICT, _found("another", "7")], None, [_sent("3", 2), READ]),
        (2, [GONE], None, [_sent("3", 2)]),
        (2, [CONFLICT, GONE], None, [_sent("3", 2), READ]),
    ],
    ids=["unchanged", "known version", "conflict", "another object of the name", "deleted", "conflict, then deleted"],
)
@virtual
async def test_statuses_are_written_to_the_known_object(
    count: int, answers: list[Response], written: KnownStatus | None, sent: list[Any]
) -> None:
    server = Server(*answers)
    assert await _counted(server, count) == written
    assert server.requests == sent


@virtual
async def test_a_persistent_conflict_is_raised() -> None:
    server = Server(*[CONFLICT, _found("mine", "7", count=5)] * CONFLICT_ATTEMPTS)
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
