from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.features.deletionprotection.lookups import CONTENTS, LIST_SECONDS, DeletionLookups
from app.features.deletionprotection.plan import Count
from app.kube.client import Client
from app.kube.errors import Forbidden
from app.kube.resources import NAMESPACES, Resource
from app.kube.wire import Request, Response
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import Connections, json_response, listing, status_body, virtual

ACTIVE_PODS, BOUND_CLAIMS = CONTENTS
WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
GOING = {"deletionTimestamp": "2026-11-21T03:10:17Z"}


def item(name: str, metadata: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **(metadata or {})}, **more}


def asked(*answers: Response) -> tuple[DeletionLookups, Connections]:
    transport = Connections()
    transport.answers.extend(answers)
    return DeletionLookups(Client(transport, VirtualClock())), transport


@virtual
@pytest.mark.behaviour("DP-22")
async def test_terminating_pods_do_not_count_and_finished_pods_are_not_fetched() -> None:
    lookups, transport = asked(listing(1, item("a"), item("b", GOING), item("c")))
    assert await lookups.contents(ACTIVE_PODS, "shop") == Count(2)
    (request,) = transport.requests
    assert request.path == "/api/v1/namespaces/shop/pods"
    assert request.query == {"limit": "500", "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    assert "PartialObjectMetadataList" in request.headers["Accept"]


@virtual
@pytest.mark.behaviour("DP-57")
async def test_the_uid_of_an_object_is_read_live_or_empty() -> None:
    lookups, transport = asked(
        json_response(200, item("shop", {"uid": "u-1"})),
        json_response(404, status_body(404, "NotFound", 'namespaces "gone" not found')),
    )
    assert await lookups.uid(NAMESPACES, "shop") == "u-1"
    assert await lookups.uid(NAMESPACES, "gone") == ""
    assert [request.path for request in transport.requests] == ["/api/v1/namespaces/shop", "/api/v1/namespaces/gone"]


@virtual
@pytest.mark.behaviour("DP-23")
async def test_claims_count_while_they_are_bound() -> None:
    bound = {"phase": "Bound"}
    claims = [
        item("a", status=bound),
        item("b", GOING, status=bound),
        item("c", status={"phase": "Pending"}),
        item("d", status={"phase": "Lost"}),
        item("e"),
    ]
    lookups, transport = asked(listing(1, *claims))
    assert await lookups.contents(BOUND_CLAIMS, "shop") == Count(1)
    assert transport.requests[0].path == "/api/v1/namespaces/shop/persistentvolumeclaims"


@virtual
@pytest.mark.behaviour("DP-27", "DP-51")
async def test_listing_custom_resources_stops_at_the_first_live_object() -> None:
    lookups, transport = asked(
        listing(1, item("a", GOING), item("b", GOING), continue_token="second"),
        listing(1, item("c", GOING), item("d"), item("e"), continue_token="third"),
    )
    assert await lookups.custom_resources(WIDGETS) == Count(2, at_least=True)
    assert [request.path for request in transport.requests] == ["/apis/example.com/v1/widgets"] * 2
    assert transport.requests[1].query["continue"] == "second"
    assert all("PartialObjectMetadataList" in request.headers["Accept"] for request in transport.requests)


@virtual
@pytest.mark.behaviour("DP-27")
async def test_no_custom_resource_is_live_if_all_are_terminating() -> None:
    lookups, _ = asked(listing(1, item("a", GOING), continue_token="second"), listing(1))
    assert await lookups.custom_resources(WIDGETS) == Count(0)


@virtual
@pytest.mark.behaviour("DP-28")
async def test_a_refused_list_is_an_error() -> None:
    lookups, _ = asked(json_response(403, status_body(403, "Forbidden", "widgets.example.com is forbidden")))
    with pytest.raises(Forbidden):
        await lookups.custom_resources(WIDGETS)


@virtual
@pytest.mark.behaviour("DP-24")
async def test_an_unresponsive_api_server_is_abandoned_before_the_review_times_out() -> None:
    async def never(_request: Request) -> Response:
        await asyncio.sleep(3600)
        raise AssertionError("not cancelled")

    transport = Connections()
    transport.answers.append(never)
    clock = VirtualClock()
    with pytest.raises(TimeoutError, match="no response from the API server within 8 s"):
        await DeletionLookups(Client(transport, clock)).contents(ACTIVE_PODS, "shop")
    assert clock.monotonic() == pytest.approx(LIST_SECONDS)
