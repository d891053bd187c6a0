"""Status writes reach only the intended object, and conflicts are retried on the latest version."""

from typing import Any

import orjson
import pytest

from app.kube.client import Client
from app.kube.clock import CONFLICT_ATTEMPTS
from app.kube.errors import Conflict
from app.kube.objects import ObjectMeta, Pod
from app.kube.resources import Resource
from app.kube.statuses import KnownStatus, newest_status, write_status
from app.kube.wire import Response
from tests.kube.fakes import client_for, json_response, status_body, virtual

SETS = Resource("apps.example.com", "v1", "things", "Thing", namespaced=False)
PATH = "/apis/apps.example.com/v1/things/a"
OWNER = ObjectMeta(name="a", uid="mine", resource_version="3")
KNOWN = KnownStatus({"count": 1}, "3")


def _found(uid: str, version: str, **status: int) -> Response:
    return json_response(200, {"metadata": {"name": "a", "uid": uid, "resourceVersion": version}, "status": status})


def _refused(code: int, reason: str) -> Response:
    return json_response(code, status_body(code, reason))


async def _counted(client: Client, count: int) -> KnownStatus | None:
    def difference(present: Any) -> dict[str, int]:
        return {} if present.get("count") == count else {"count": count}

    return await write_status(client, SETS, OWNER, KNOWN, difference)


def _sent(version: str, count: int) -> tuple[str, str, Any]:
    return ("PATCH", f"{PATH}/status", {"metadata": {"resourceVersion": version}, "status": {"count": count}})


CONFLICT, GONE, READ = _refused(409, "Conflict"), _refused(404, "NotFound"), ("GET", PATH, None)


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
    client, connections = client_for(*answers)
    assert await _counted(client, count) == written
    requests = connections.requests
    assert [(one.method, one.path, orjson.loads(one.body) if one.body else None) for one in requests] == sent


@virtual
async def test_a_persistent_conflict_is_raised() -> None:
    client, connections = client_for(*[CONFLICT, _found("mine", "7", count=5)] * CONFLICT_ATTEMPTS)
    with pytest.raises(Conflict):
        await _counted(client, 2)
    assert [request.method for request in connections.requests].count("PATCH") == CONFLICT_ATTEMPTS


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
