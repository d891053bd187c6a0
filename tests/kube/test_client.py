import json
import logging

import orjson
import pytest

from app.kube import discovery
from app.kube.client import Client, PatchType, delete_if_present, encode, get_or_none, retry_conflicts
from app.kube.clock import TokenBucket
from app.kube.discovery import KindMapper, Mapped
from app.kube.errors import Conflict, DecodeError, Forbidden, Gone, NotFound, ServerError, TooManyRequests
from app.kube.objects import LeaseSpec, ObjectMeta, decode_metadata, decode_pod
from app.kube.resources import NAMESPACES, PODS, Resource
from app.kube.wire import Response
from tests.fuzz.objects import nested
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import Connections, client_for, json_response, listing, obj, pieces, status_body, virtual


@virtual
async def test_an_object_is_a_dict_or_the_decoder_result():
    client, connections = client_for(json_response(200, obj("web-0", 7)), json_response(200, obj("web-0", 7)))
    assert (await client.get(PODS, "web-0", "shop"))["metadata"]["resourceVersion"] == "7"
    pod = await client.get(PODS, "web-0", "shop", decode=decode_pod)
    assert pod.metadata.resource_version == "7"
    request = connections.requests[0]
    assert (request.method, request.target) == ("GET", "/api/v1/namespaces/shop/pods/web-0")
    assert request.headers["User-Agent"] == "kruise-manager"
    assert request.headers["Accept"] == "application/json"
    assert request.body is None


@virtual
async def test_named_clients_send_their_name_on_shared_connections():
    client, connections = client_for(json_response(200, {}))
    await client.named("sidecarset").get(NAMESPACES, "shop")
    assert connections.requests[0].headers["User-Agent"] == "kruise-manager/sidecarset"


WRITES = {
    "create": lambda client, **options: client.create(PODS, {}, "shop", **options),
    "replace": lambda client, **options: client.replace(PODS, "web-0", {}, "shop", **options),
    "patch": lambda client, **options: client.patch(PODS, "web-0", {}, "shop", **options),
    "apply": lambda client, **options: client.patch(PODS, "web-0", {}, "shop", kind=PatchType.APPLY, **options),
    "delete": lambda client, **options: client.delete(PODS, "web-0", "shop", **options),
}


@virtual
@pytest.mark.parametrize("write", WRITES)
async def test_every_write_can_be_a_dry_run_and_names_its_writer(write):
    connections = Connections()
    connections.answers.extend([json_response(200, {})] * 4)
    client, dry = Client(connections, VirtualClock()), Client(connections, VirtualClock(), dry_run=True)
    names = {} if write == "delete" else {"field_manager": "me", "field_validation": "Strict"}
    for one, options in ((client, names), (client, {"dry_run": True}), (dry, {}), (dry.named("x"), {})):
        await WRITES[write](one, **options)
    named, *others = (request.query for request in connections.requests)
    assert named == ({"fieldManager": "me", "fieldValidation": "Strict"} if names else {})
    by_default = {"fieldManager": "kruise-manager"} if write == "apply" else {}
    assert others == [{"dryRun": "All"} | by_default] * 3


@virtual
async def test_writes_are_sent_with_the_content_of_their_verb():
    client, connections = client_for(*[json_response(201, {})] * 6)
    body = {"metadata": {"name": "web-0"}}
    await client.create(PODS, body, "shop")
    await client.create(PODS, body, "shop", name="web-0", subresource="eviction")
    await client.replace(PODS, "web-0", b'{"raw": 1}', "shop", subresource="status")
    await client.patch(PODS, "web-0", [{"op": "remove", "path": "/a"}], "shop", kind=PatchType.JSON)
    await client.patch(PODS, "web-0", body, "shop", kind=PatchType.APPLY, force=True)
    await client.patch(PODS, "web-0", LeaseSpec(holder_identity="a"), "shop", kind=PatchType.STRATEGIC)
    seen = [(r.method, r.target, r.headers["Content-Type"], orjson.loads(r.body or b"")) for r in connections.requests]
    pods = "/api/v1/namespaces/shop/pods"
    assert seen == [
        ("POST", pods, "application/json", body),
        ("POST", f"{pods}/web-0/eviction", "application/json", body),
        ("PUT", f"{pods}/web-0/status", "application/json", {"raw": 1}),
        ("PATCH", f"{pods}/web-0", "application/json-patch+json", [{"op": "remove", "path": "/a"}]),
        ("PATCH", f"{pods}/web-0?fieldManager=kruise-manager&force=true", "application/apply-patch+yaml", body),
        ("PATCH", f"{pods}/web-0", "application/strategic-merge-patch+json", {"holderIdentity": "a"}),
    ]


@virtual
async def test_an_answer_read_as_metadata_holds_metadata_only():
    client, connections = client_for(*[json_response(200, obj("a", 7))] * 5)
    await client.create(PODS, {}, "shop", decode=decode_metadata)
    await client.patch(PODS, "a", {}, "shop", decode=decode_metadata)
    await client.patch(PODS, "a", {}, "shop", decode=decode_pod)
    await client.patch(PODS, "a", {}, "shop")
    await client.delete(PODS, "a", "shop", decode=decode_metadata)  # the answer may be a Status
    alone = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    asked = [request.headers["Accept"] for request in connections.requests]
    assert asked == [alone, alone, *["application/json"] * 3]


@virtual
async def test_deletes_send_preconditions():
    client, connections = client_for(json_response(200, {}))
    await client.delete(
        PODS, "web-0", "shop", grace_period_seconds=0, propagation_policy="Orphan", uid="u", resource_version="5"
    )
    assert orjson.loads(connections.requests[0].body or b"") == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Orphan",
        "preconditions": {"uid": "u", "resourceVersion": "5"},
    }


@virtual
async def test_exactly_this_object_is_deleted_if_present():
    client, connections = client_for(
        json_response(200, obj("web-0", 7)),
        json_response(404, status_body(404, "NotFound")),
        json_response(409, status_body(409, "Conflict")),
    )
    web = ObjectMeta(name="web-0", namespace="shop", uid="u")
    assert [await delete_if_present(client, PODS, web) for _ in range(2)] == [True, False]
    with pytest.raises(Conflict):
        await delete_if_present(client, PODS, web)
    sent = orjson.loads(connections.requests[0].body or b"")
    assert (sent["preconditions"], sent["propagationPolicy"]) == ({"uid": "u"}, "Background")


@virtual
async def test_a_namespaced_create_without_namespace_is_refused_locally():
    client, connections = client_for()
    with pytest.raises(ValueError, match=r"^Pod: a namespace is required to create one$"):
        await client.create(PODS, {})
    assert not connections.requests


@virtual
async def test_a_request_for_an_object_without_a_name_is_never_sent():
    """It would list, or delete, all objects of the namespace. Names come from owner references and annotations."""
    client, connections = client_for()
    writes = (client.patch(PODS, "", {}, "shop"), client.replace(PODS, "", {}, "shop"), client.delete(PODS, "", "shop"))
    for asked in (client.get(PODS, "", "shop"), client.get(NAMESPACES, ""), *writes):
        with pytest.raises(NotFound, match="no object can have this name"):
            await asked
    assert not connections.requests


@virtual
async def test_lists_are_fetched_in_pages():
    client, connections = client_for(listing(9, obj("a", 1), obj("b", 2), continue_token="t1"), listing(9, obj("c", 3)))
    pods = await client.list(PODS, label_selector="app=a,b", field_selector="spec.nodeName=n", page_size=2,
                             decode=decode_pod)  # fmt: skip
    assert [pod.metadata.name for pod in pods.items] == ["a", "b", "c"]
    assert (pods.resource_version, pods.continue_token) == ("9", "")
    assert connections.requests[0].query == {
        "labelSelector": "app=a,b", "fieldSelector": "spec.nodeName=n", "limit": "2"}  # fmt: skip
    assert connections.requests[1].query["continue"] == "t1"


@virtual
async def test_a_list_of_metadata_asks_for_no_more():
    client, connections = client_for(listing(9, obj("a", 1), continue_token="t"), listing(9))
    await client.list(PODS, metadata_only=True)
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert [request.headers["Accept"] for request in connections.requests] == [accept] * 2


@virtual
async def test_a_list_that_expires_between_pages_is_fetched_at_once():
    client, connections = client_for(
        listing(9, obj("a", 1), continue_token="t1"),
        json_response(410, status_body(410, "Expired")),
        listing(12, obj("b", 2), obj("c", 3)),
    )
    pods = await client.list(PODS, page_size=1)
    assert [pod["metadata"]["name"] for pod in pods.items] == ["b", "c"]
    assert pods.resource_version == "12"
    assert connections.requests[2].query == {}


@virtual
async def test_an_expired_first_page_is_an_error():
    client, _ = client_for(json_response(410, status_body(410, "Expired")))
    with pytest.raises(Gone):
        await client.list(PODS)


@virtual
async def test_errors_are_raised_by_reason_with_their_request():
    client, _ = client_for(json_response(404, status_body(404, "NotFound", 'pods "x" not found')))
    with pytest.raises(NotFound) as caught:
        await client.get(PODS, "x", "shop")
    assert str(caught.value) == 'GET /api/v1/namespaces/shop/pods/x: pods "x" not found (NotFound, 404)'


@virtual
async def test_retry_after_is_honored():
    busy = json_response(429, status_body(429, "TooManyRequests"), Retry_After="3")
    client, connections = client_for(busy, busy, json_response(201, {"ok": True}))
    assert await client.create(PODS, {}, "shop") == {"ok": True}
    assert client.clock.monotonic() == 6
    assert len(connections.requests) == 3


@virtual
async def test_retries_are_limited():
    busy = json_response(429, status_body(429, "TooManyRequests"), Retry_After="100")
    client, connections = client_for(*[busy] * 6)
    with pytest.raises(TooManyRequests):
        await client.get(PODS, "x", "shop")
    assert len(connections.requests) == 6
    assert client.clock.monotonic() == 5 * 30


@virtual
@pytest.mark.parametrize(
    ("method", "code", "header", "sent"),
    [("GET", 503, "1", 2), ("GET", 503, "", 1), ("POST", 503, "1", 1), ("POST", 429, "", 1), ("POST", 429, "1", 2)],
)
async def test_only_safe_requests_are_retried(method, code, header, sent):
    headers = {"Retry_After": header} if header else {}
    failure = json_response(code, status_body(code, ""), **headers)
    client, connections = client_for(failure, json_response(200, {}))
    call = client.get(PODS, "x", "shop") if method == "GET" else client.create(PODS, {}, "shop")
    if sent == 1:
        with pytest.raises((ServerError, TooManyRequests)):
            await call
    else:
        await call
    assert len(connections.requests) == sent


@virtual
@pytest.mark.parametrize("body", [b"<html>", b'{"metadata":{"name":1}}', b"\xff"])
async def test_an_unreadable_response_is_an_error_with_its_request(body):
    client, _ = client_for(Response(200, {}, body))
    with pytest.raises(DecodeError, match=r"^GET /api/v1/namespaces/shop/pods/x: cannot decode the response: "):
        await client.get(PODS, "x", "shop", decode=decode_pod)


@pytest.mark.behaviour("MGR-11")
@virtual
async def test_a_rate_limit_paces_requests_per_named_client():
    clock = VirtualClock()
    connections = Connections()
    connections.answers.extend([json_response(200, {})] * 25)
    limited = Client(connections, clock, limit=lambda: TokenBucket(clock, qps=2, burst=3))
    client, other, urgent = limited.named("slow"), limited.named("other"), limited.named("urgent", limited=False)
    for _ in range(3):
        await other.get(NAMESPACES, "shop")
    for _ in range(10):
        await urgent.get(NAMESPACES, "shop")
    own = limited.named("own", limiter=TokenBucket(clock, qps=1, burst=1))
    times = []
    for one in (*[client] * 5, own, own):
        await one.get(NAMESPACES, "shop")
        times.append(clock.monotonic())
    async with own.watch(PODS, "", {}):
        times.append(clock.monotonic())
    assert times == [0, 0, 0, 0.5, 1.0, 1.0, 2.0, 3.0]


@virtual
async def test_server_warnings_are_logged_once(caplog):
    answer = json_response(200, {}, Warning='299 - "v1alpha1 is deprecated", 299 - "unknown field \\"spec.a\\""')
    client, _ = client_for(answer, answer)
    with caplog.at_level(logging.WARNING):
        await client.get(NAMESPACES, "shop")
        await client.get(NAMESPACES, "shop")
    assert [record.getMessage() for record in caplog.records] == [
        "GET /api/v1/namespaces/shop: warning from the API server: v1alpha1 is deprecated",
        'GET /api/v1/namespaces/shop: warning from the API server: unknown field "spec.a"',
    ]


@virtual
async def test_a_refused_watch_raises_the_server_error():
    client, connections = client_for()
    connections.streams.append(json_response(410, status_body(410, "Expired", "too old")))
    with pytest.raises(Gone, match="too old"):
        async with client.watch(PODS, "shop", {"resourceVersion": "1"}):
            pass
    assert connections.watches[0].target == "/api/v1/namespaces/shop/pods?resourceVersion=1&watch=true"


@virtual
async def test_a_watch_returns_the_bytes_as_received():
    client, connections = client_for()
    connections.streams.append(pieces(b"a", b"b\nc"))
    async with client.watch(PODS, "", {}) as stream:
        assert [chunk async for chunk in stream.chunks] == [b"a", b"b\nc"]
    assert connections.open_streams == 0


@pytest.mark.parametrize("value", [2**70, "half \ud800", nested(300)])
def test_raw_bodies_are_sent_unchanged(value: object) -> None:
    assert json.loads(encode({"spec": value})) == {"spec": value}


# ---- reading one object


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


@pytest.mark.parametrize(("conflicts", "seconds"), [(0, 0.0), (3, 0.31), (4, 0.31)])
@virtual
async def test_a_conflict_is_retried_three_times(conflicts, seconds):
    conflict = json_response(409, status_body(409, "Conflict"))
    client, _ = client_for(*[conflict] * conflicts, json_response(200, obj("web-0", 7)))
    began = client.clock.monotonic()
    try:
        assert (await retry_conflicts(client, lambda _: client.get(PODS, "web-0", "shop")))["metadata"][
            "name"
        ] == "web-0"
    except Conflict:
        assert conflicts == 4
    assert client.clock.monotonic() - began == pytest.approx(seconds)


# ---- kinds by name


THINGS = {
    "resources": [
        {"name": "things", "kind": "Thing", "namespaced": True},
        {"name": "things/scale", "kind": "Scale"},
        {"name": "nodes", "kind": "Node"},
    ]
}


@virtual
async def test_a_kind_is_found_and_remembered_for_a_while():
    client, connections = client_for(json_response(200, THINGS))
    mapper, group = KindMapper(client), "example.com/v1"
    thing = Mapped(Resource("example.com", "v1", "things", "Thing"), scalable=True)
    node = Mapped(Resource("example.com", "v1", "nodes", "Node", namespaced=False), scalable=False)
    assert (await mapper.find(group, "Thing"), await mapper.find(group, "Node")) == (thing, node)
    assert [request.target for request in connections.requests] == ["/apis/example.com/v1"]
    for kind, after, asked in [("Thing", 299, 0), ("Scale", 0, 1), ("Scale", 9, 0), ("Scale", 1, 1), ("Thing", 300, 1)]:
        connections.answers.append(json_response(200, THINGS))
        before = len(connections.requests)
        await client.clock.sleep(after)
        assert await mapper.find(group, kind) == (thing if kind == "Thing" else None)
        assert len(connections.requests) - before == asked, (kind, after)


@virtual
async def test_a_group_that_is_not_served_is_asked_for_again_soon():
    client, connections = client_for(json_response(404, status_body(404, "NotFound")), json_response(200, THINGS))
    mapper = KindMapper(client)
    for after, found in [(0, False), (9, False), (1, True)]:
        await client.clock.sleep(after)
        assert (await mapper.find("example.com/v1", "Thing") is not None) is found
    assert len(connections.requests) == 2


@virtual
async def test_names_of_groups_that_users_make_up_are_neither_requested_nor_all_remembered(monkeypatch):
    client, connections = client_for(*[json_response(200, THINGS)] * 3)
    mapper = KindMapper(client)
    for invented in ("", "../v1", "a/b/v1", "x?y/v1", "é/v1", "a" * 254 + "/v1"):
        assert await mapper.find(invented, "Thing") is None
    assert not connections.requests
    monkeypatch.setattr(discovery, "MAX_REMEMBERED", 2)
    for group in "abc":
        await mapper.find(f"{group}/v1", "Thing")
    assert len(mapper._found) <= 2
