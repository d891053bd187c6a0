"""Lookups of the SidecarSet webhooks in the cluster, and their results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.features.sidecarset.injection.selection import SidecarSetIndex
from app.features.sidecarset.pod_admission import LIST_SECONDS, RECORDED_REVISIONS, InjectionLookups, NewerSets
from app.features.sidecarset.webhooks import SidecarSetLookups
from app.framework.watched import CONFIGURATION, Stores
from app.kube.errors import ApiError
from app.kube.objects import ConfigMap, ObjectMeta
from app.kube.store import Store
from tests.features.admitting import sidecarset
from tests.kube.fakes import Connections, client_for, json_response, listing, status_body, virtual

REVISION = {"metadata": {"name": "s-1", "labels": {"kruise.io/sidecarset-name": "s"}}, "revision": 3, "data": {}}
NOT_FOUND = json_response(404, status_body(404, "NotFound"))


def lookups_for(*answers: Any) -> tuple[SidecarSetLookups, Connections]:
    client, connections = client_for(*answers)
    return SidecarSetLookups(client, Stores(()), "kruise-system", NewerSets(client, lambda *_: False)), connections


def injection_lookups(index: SidecarSetIndex) -> tuple[InjectionLookups, Connections]:
    client, connections = client_for()
    newer = NewerSets(client, index.shows)
    return InjectionLookups(Store(), Store(), client, "kruise-system", newer), connections


@pytest.mark.behaviour("SS-26")
@virtual
async def test_revisions_are_read_in_the_manager_namespace() -> None:
    listed = {"metadata": {}, "items": [REVISION]}
    lookups, connections = lookups_for(json_response(200, REVISION), NOT_FOUND, json_response(200, listed))
    found = await lookups.revision("s-1")
    assert found is not None
    assert (found.metadata.name, found.revision) == ("s-1", 3)
    assert await lookups.revision("s-2") is None
    assert [r.metadata.name for r in await lookups.revisions_of("s")] == ["s-1"]
    base = "/apis/apps/v1/namespaces/kruise-system/controllerrevisions"
    assert [request.target for request in connections.requests[:2]] == [f"{base}/s-1", f"{base}/s-2"]
    assert "labelSelector=kruise.io%2Fsidecarset-name%3Ds" in connections.requests[2].target


@pytest.mark.behaviour("SS-31")
@virtual
async def test_the_whitelist_is_read_on_each_use() -> None:
    key = "SidecarSet_PatchPodMetadata_WhiteList"
    lookups, connections = lookups_for(
        NOT_FOUND, json_response(200, {"data": {key: "{}"}}), json_response(200, {"data": {"other": "x"}})
    )
    assert [await lookups.whitelist() for _ in range(3)] == [None, "{}", None]
    assert {r.target for r in connections.requests} == {
        "/api/v1/namespaces/kruise-system/configmaps/kruise-configuration"
    }


@pytest.mark.behaviour("SS-29")
@virtual
async def test_a_base_missing_in_the_cache_is_read_live() -> None:
    base = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet", "metadata": {"name": "b"}, "spec": {}}
    lookups, connections = lookups_for(json_response(200, base), NOT_FOUND)
    found = await lookups.sidecarset("b")
    assert found is not None
    assert found.name == "b"
    assert await lookups.sidecarset("gone") is None
    assert connections.requests[0].target == "/apis/apps.kruise.io/v1beta1/sidecarsets/b"


@pytest.mark.behaviour("SS-39", "MGR-154")
@virtual
async def test_claims_of_all_pods_share_a_list_and_only_newer_sets_are_read() -> None:
    lookups, connections = injection_lookups(index := SidecarSetIndex())
    sets = [sidecarset(name, metadata={"uid": f"uid-{name}", "generation": 2}) for name in ("a", "b", "c")]
    index.update(sets[0])
    index.update({**sets[1], "metadata": {**sets[1]["metadata"], "generation": 1}})
    listed = listing(1, *({"metadata": one["metadata"]} for one in sets))
    connections.answers += [listed, json_response(200, sets[1]), listed]
    claimed = ["a", "b", *(f"forged-{number}" for number in range(98))]
    for found in await asyncio.gather(*(lookups.newer_sidecarsets(claimed) for _ in range(200))):
        assert list(found) == [sets[1]]
        for one in found:
            index.update(one)
    assert await lookups.newer_sidecarsets(claimed) == []
    path = "/apis/apps.kruise.io/v1beta1/sidecarsets"
    assert [request.path for request in connections.requests] == [path, f"{path}/b", path]
    assert "PartialObjectMetadataList" in connections.requests[0].headers["Accept"]


@pytest.mark.behaviour("SS-39")
@virtual
async def test_an_unresponsive_api_server_delays_pods_only_briefly() -> None:
    lookups, connections = injection_lookups(SidecarSetIndex())
    connections.answers.append(lambda _: asyncio.Event().wait())  # type: ignore[arg-type,return-value]
    loop = asyncio.get_running_loop()
    start = loop.time()
    with pytest.raises(TimeoutError):
        await lookups.newer_sidecarsets(["s"])
    assert loop.time() - start == pytest.approx(LIST_SECONDS)


@pytest.mark.behaviour("SS-35", "SS-39", "SS-68", "MGR-155")
@virtual
async def test_a_pod_is_not_admitted_without_the_sets_that_cannot_be_looked_up() -> None:
    lookups, connections = injection_lookups(SidecarSetIndex())
    for lookup in (
        lambda: lookups.newer_sidecarsets(["s"]),
        lambda: lookups.live_namespace_labels("shop"),
        lambda: lookups.live_revisions("s"),
    ):
        connections.answers.append(json_response(500, status_body(500, "InternalError")))
        with pytest.raises(ApiError):
            await lookup()
    connections.answers.append(NOT_FOUND)
    assert await lookups.live_namespace_labels("shop") is None


@virtual
async def test_templates_are_validated_in_the_manager_namespace() -> None:
    lookups, connections = lookups_for(json_response(201, {}))
    assert await lookups.template_errors({"spec": {}}) == []
    assert connections.requests[0].target.startswith("/api/v1/namespaces/kruise-system/podtemplates")


@virtual
async def test_without_a_cluster_there_are_no_revisions_and_no_requests() -> None:
    files = Stores((RECORDED_REVISIONS, CONFIGURATION))
    data = {"SidecarSet_PatchPodMetadata_WhiteList": "{}"}
    metadata = ObjectMeta(name="kruise-configuration", namespace="kruise-system")
    files(CONFIGURATION).put(ConfigMap(metadata=metadata, data=data))
    lookups = SidecarSetLookups(None, files, "kruise-system", defaults_allowed=True)
    assert await lookups.revision("s-1") is None
    assert list(await lookups.revisions_of("s")) == []
    assert await lookups.template_errors({}) is None
    assert await lookups.whitelist() == "{}"
    assert lookups.defaults_allowed
