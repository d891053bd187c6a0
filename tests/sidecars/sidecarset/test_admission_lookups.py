"""What the SidecarSet webhooks ask of a cluster, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest

from app.kube.client import Client
from app.kube.objects import ConfigMap, ObjectMeta
from app.kube.store import Store
from app.kube.virtualtime import VirtualClock
from app.sidecars.sidecarset.admission_lookups import ClusterLookups, StandaloneLookups
from tests.kube.fakes import Connections, json_response, status_body, virtual

REVISION = {"metadata": {"name": "s-1", "labels": {"kruise.io/sidecarset-name": "s"}}, "revision": 3, "data": {}}
NOT_FOUND = json_response(404, status_body(404, "NotFound"))


def lookups_for(*answers: Any) -> tuple[ClusterLookups, Connections]:
    connections = Connections()
    connections.answers.extend(answers)
    return ClusterLookups(Client(connections, VirtualClock()), "kruise-system", lambda: ()), connections


@pytest.mark.behaviour("SS-26")
@virtual
async def test_revisions_are_read_in_the_managers_namespace() -> None:
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
async def test_the_whitelist_is_read_at_each_use() -> None:
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
async def test_a_base_the_cache_does_not_know_yet_is_read_live() -> None:
    base = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet", "metadata": {"name": "b"}, "spec": {}}
    lookups, connections = lookups_for(json_response(200, base), NOT_FOUND)
    found = await lookups.sidecarset("b")
    assert found is not None
    assert found.name == "b"
    assert await lookups.sidecarset("gone") is None
    assert connections.requests[0].target == "/apis/apps.kruise.io/v1beta1/sidecarsets/b"


@virtual
async def test_templates_are_checked_in_the_managers_namespace() -> None:
    lookups, connections = lookups_for(json_response(201, {}))
    assert await lookups.template_errors({"spec": {}}) == []
    assert connections.requests[0].target.startswith("/api/v1/namespaces/kruise-system/podtemplates")


@virtual
async def test_without_a_cluster_there_are_no_revisions_and_nobody_to_ask() -> None:
    configuration = Store[ConfigMap]()
    data = {"SidecarSet_PatchPodMetadata_WhiteList": "{}"}
    configuration.put(ConfigMap(metadata=ObjectMeta(name="kruise-configuration"), data=data))
    lookups = StandaloneLookups(lambda: (), configuration=configuration, defaults_allowed=True)
    assert await lookups.revision("s-1") is None
    assert list(await lookups.revisions_of("s")) == []
    assert await lookups.template_errors({}) is None
    assert await lookups.whitelist() == "{}"
    assert lookups.defaults_allowed
