from __future__ import annotations

import json

import pytest

from app.cli.protect import set_protection, wanted_kind
from app.features.deletionprotection.protected_kinds import load_table
from app.kube.client import Client
from app.kube.errors import CommandError
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import virtual
from tests.pods.apiserver import ApiServer

TABLE = load_table()
LABEL = "policy.kruise.io/delete-protection"
PATH = "/apis/apps/v1/namespaces/shop/deployments/web"


@virtual
@pytest.mark.behaviour("DP-8", "DP-10")
async def test_the_label_is_set_changed_and_removed() -> None:
    server = ApiServer()
    server.put(PATH, {"metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}})
    client = Client(server, VirtualClock())
    deployment = wanted_kind(TABLE, "deploy", "web", "Always")
    said = [
        await set_protection(client, deployment, "web", "shop", value)
        for value in ("Always", "Always", "Cascading", "", "")
    ]
    assert said == [
        "Deployment shop/web: protected (Always)",
        "Deployment shop/web: protected (Always) already",
        "Deployment shop/web: protected while other objects depend on it (Cascading) (before: Always)",
        "Deployment shop/web: no longer protected (before: Cascading)",
        "Deployment shop/web: was not protected",
    ]
    assert server.objects[PATH]["metadata"]["labels"] == {"app": "web"}
    bodies = [json.loads(one.body or b"{}") for one in server.requests if one.method != "GET"]
    uid = server.objects[PATH]["metadata"]["uid"]
    assert [body["metadata"]["uid"] for body in bodies] == [uid] * 3  # no namesake is changed


@virtual
async def test_a_missing_object_is_reported_with_the_fix() -> None:
    client = Client(ApiServer(), VirtualClock())
    with pytest.raises(CommandError, match="Deployment shop/web: not found; use -n to specify another namespace"):
        await set_protection(client, wanted_kind(TABLE, "deploy", "web", "Always"), "web", "shop", "Always")
    with pytest.raises(CommandError, match=r"Namespace shop: not found$"):
        await set_protection(client, wanted_kind(TABLE, "ns", "shop", "Always"), "shop", "", "Always")


def test_an_unprotected_kind_is_refused_with_the_list_of_protected_ones() -> None:
    with pytest.raises(CommandError, match=r"daemonset web: .* it covers namespaces, .*deployments\.apps"):
        wanted_kind(TABLE, "daemonset", "web", "Always")


@pytest.mark.behaviour("DP-29")
def test_cascading_is_refused_where_it_has_no_effect() -> None:
    with pytest.raises(CommandError, match="Service web: --cascading has no effect on this kind; omit it"):
        wanted_kind(TABLE, "svc", "web", "Cascading")
