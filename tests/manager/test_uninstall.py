"""Uninstall: refused while workloads exist; otherwise the manager is stopped before its webhooks are deleted."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.admission.configurations import MUTATING_NAME, VALIDATING_NAME
from app.api.names import DELETION_PROTECTION
from app.features.sidecarset.kind import SIDECAR_SET
from app.kube.client import Client
from app.kube.wire import Request, Response
from app.manager.features import workloads
from app.manager.uninstall import MANAGER_PODS, STOP_SECONDS, UninstallRefusedError, permissions, prepare_uninstall
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer, json_response, status_body, virtual

CLONE_SET = replace(SIDECAR_SET, kind="CloneSet", plural="clonesets", namespaced=True)
MUTATING = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{MUTATING_NAME}"
VALIDATING = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{VALIDATING_NAME}"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kruise-system/leases/kruise-manager"
SCALES = tuple(
    f"/apis/apps/v1/namespaces/kruise-system/deployments/{name}/scale"
    for name in ("kruise-controllers", "kruise-controller-manager")
)
PODS = "/api/v1/namespaces/kruise-system/pods"
CLONE_SETS = f"/apis/{CLONE_SET.group}/{CLONE_SET.hub.name}/clonesets"


class Api(MemoryServer):
    """Answers DELETE, and lists by path."""

    lists: dict[str, Callable[[], list[dict[str, Any]]]]

    def _answer(self, request: Request) -> Response:
        if request.path in self.lists:
            return json_response(200, {"kind": "List", "metadata": {}, "items": self.lists[request.path]()})
        if request.method == "DELETE":
            gone = self.objects.pop(request.path, None)
            return json_response(404, status_body(404, "NotFound")) if gone is None else json_response(200, gone)
        return super()._answer(request)


def cluster(**pods: Callable[[], list[dict[str, Any]]]) -> Api:
    made = Api()
    made.lists = {PODS: pods.get("pods", list)}
    for path in (MUTATING, VALIDATING, LEASE, *SCALES):
        made.objects[path] = {
            "metadata": {"name": path.rpartition("/")[2], "resourceVersion": "1"},
            "spec": {"replicas": 2},
        }
    return made


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "kruise-system"}}


@virtual
async def test_the_manager_stops_before_its_webhooks_are_removed() -> None:
    clock = VirtualClock()
    left = [[pod("a"), pod("b")], [pod("b")], []]

    def pods() -> list[dict[str, Any]]:
        # A running manager would restore a configuration.
        assert {MUTATING, VALIDATING} <= api.objects.keys()
        return left.pop(0)

    api = cluster(pods=pods)
    await prepare_uninstall(Client(api, clock), "kruise-system", ())
    assert api.objects.keys() == set(SCALES)
    assert [api.objects[path]["spec"]["replicas"] for path in SCALES] == [0, 0]
    assert left == []
    assert {one.query["labelSelector"] for one in api.requests if one.path == PODS} == {MANAGER_PODS}


@virtual
async def test_missing_objects_do_not_block_the_uninstall() -> None:
    api = cluster()
    api.objects.clear()
    await prepare_uninstall(Client(api, VirtualClock()), "kruise-system", (CLONE_SET,))


@virtual
@pytest.mark.behaviour("MGR-86")
async def test_workloads_are_named_and_nothing_is_changed() -> None:
    api = cluster()
    before = dict(api.objects)
    api.lists[CLONE_SETS] = lambda: [{"metadata": {"name": f"web-{n}", "namespace": "shop"}} for n in range(6)]
    api.lists[CLONE_SETS.replace("clonesets", "games")] = lambda: [{"metadata": {"name": "one", "namespace": "shop"}}]
    missing, game = replace(CLONE_SET, plural="missing"), replace(CLONE_SET, kind="Game", plural="games")
    said = r"uninstall refused: CloneSet shop/web-0, .*web-4, Game shop/one and more would"
    with pytest.raises(UninstallRefusedError, match=said):
        await prepare_uninstall(Client(api, VirtualClock()), "kruise-system", (missing, CLONE_SET, game))
    assert api.objects == before


@virtual
async def test_a_pod_that_does_not_stop_is_named_and_the_webhooks_stay() -> None:
    clock = VirtualClock()
    api = cluster(pods=lambda: [pod("stuck")])
    with pytest.raises(UninstallRefusedError, match=rf"Pods kruise-system/stuck: still there after {STOP_SECONDS:g} s"):
        await prepare_uninstall(Client(api, clock), "kruise-system", ())
    assert {MUTATING, VALIDATING} <= api.objects.keys()


@pytest.mark.behaviour("MGR-86")
def test_only_kinds_with_pods_block_the_uninstall() -> None:
    assert "clonesets" in {kind.plural for kind in workloads()}
    assert SIDECAR_SET not in workloads()
    listing = [rule for rule in permissions((CLONE_SET,)) if rule.resources == ("clonesets",)]
    assert [(rule.verbs, rule.own_namespace) for rule in listing] == [(("list",), False)]
    ours = [rule.resources for rule in permissions(()) if "list" in rule.verbs and rule.groups == (CLONE_SET.group,)]
    assert ours == [("imagepulljobs",), ("ephemeraljobs",)]  # whose finalizers are removed
    local = [rule for rule in permissions(()) if {"deployments/scale", "pods", "leases"} & {*rule.resources}]
    assert [rule.own_namespace for rule in local] == [True, True, True]
    assert all(rule.names for rule in permissions(()) if "list" not in rule.verbs)


@virtual
@pytest.mark.behaviour("MGR-86")
async def test_finalizers_of_jobs_are_removed_after_the_manager_stopped(caplog: pytest.LogCaptureFixture) -> None:
    api = cluster()
    where = f"/apis/{CLONE_SET.group}/v1beta1/namespaces/shop"
    for name, finalizers in (
        ("changed", [DELETION_PROTECTION]),
        ("warm", [DELETION_PROTECTION, "others"]),
        ("done", []),
        ("gone", [DELETION_PROTECTION]),
    ):
        metadata = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1", "finalizers": finalizers}
        api.objects[f"{where}/imagepulljobs/{name}"] = {"metadata": metadata}
    jobs = [one for path, one in api.objects.items() if path.startswith(where)]
    newer = {"resourceVersion": "2", "finalizers": ["added", DELETION_PROTECTION]}
    api.objects[f"{where}/imagepulljobs/changed"] = {"metadata": jobs[0]["metadata"] | newer}
    del api.objects[f"{where}/imagepulljobs/gone"]

    def listed() -> list[dict[str, Any]]:
        # A running manager would add the finalizer again, and its webhooks would review the write.
        assert [api.objects[path]["spec"]["replicas"] for path in SCALES] == [0, 0]
        assert MUTATING not in api.objects
        return jobs

    api.lists[f"/apis/{CLONE_SET.group}/v1beta1/imagepulljobs"] = listed
    await prepare_uninstall(Client(api, VirtualClock()), "kruise-system", ())
    found = {path.rpartition("/")[2]: one["metadata"] for path, one in api.objects.items() if path.startswith(where)}
    assert found["warm"]["finalizers"] == ["others"]
    assert found["done"]["resourceVersion"] == "1"
    # Another program's finalizer is not removed with ours.
    assert found["changed"]["finalizers"] == ["added", DELETION_PROTECTION]
    assert f"cannot remove finalizer {DELETION_PROTECTION} from an ImagePullJob: " in caplog.text
    patched = [orjson.loads(one.body or b"") for one in api.requests if "imagepulljobs/" in one.path]
    assert {one["metadata"].get("uid") for one in patched} == {"changed", "warm", "gone"}


@virtual
async def test_unreadable_jobs_block_nothing(caplog: pytest.LogCaptureFixture) -> None:
    api = cluster()
    api.fail = lambda request: (
        json_response(500, status_body(500, "InternalError")) if "imagepulljobs" in request.path else None
    )
    await prepare_uninstall(Client(api, VirtualClock()), "kruise-system", ())
    assert api.objects.keys() == set(SCALES)
    assert "from ImagePullJobs: " in caplog.text
