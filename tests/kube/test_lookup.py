"""Reading one object, or None if it does not exist."""

import pytest

from app.kube.client import Client, get_or_none
from app.kube.errors import Forbidden
from app.kube.objects import decode_pod
from app.kube.resources import PODS
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import Connections, json_response, obj, status_body, virtual


@virtual
async def test_a_missing_object_is_none_and_a_refusal_is_raised():
    connections = Connections()
    connections.answers += [
        json_response(200, obj("web-0", 7)),
        json_response(404, status_body(404, "NotFound")),
        json_response(403, status_body(403, "Forbidden")),
    ]
    client = Client(connections, VirtualClock())
    found = await get_or_none(client, PODS, "web-0", "shop", decode=decode_pod)
    assert found.metadata.name == "web-0"
    assert await get_or_none(client, PODS, "web-1", "shop", decode=decode_pod) is None
    with pytest.raises(Forbidden):
        await get_or_none(client, PODS, "web-2", "shop", decode=decode_pod)
    assert connections.requests[1].target == "/api/v1/namespaces/shop/pods/web-1"
