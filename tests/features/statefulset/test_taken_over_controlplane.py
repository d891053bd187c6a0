"""What OpenKruise left behind, on a real API server: taken over, then changed and scaled by ours."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.features.statefulset.test_takeover import recorded
from tests.scenarios.world import eventually, install, manager

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]
SETS = "/apis/apps.kruise.io/v1beta1/namespaces/moving/statefulsets"
PATHS = {
    "StatefulSet": SETS,
    "Pod": "/api/v1/namespaces/moving/pods",
    "PersistentVolumeClaim": "/api/v1/namespaces/moving/persistentvolumeclaims",
    "ControllerRevision": "/apis/apps/v1/namespaces/moving/controllerrevisions",
}
GIVEN_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "generateName")


def without_projections(pod: Json) -> None:
    """Nobody issues tokens here, and no node is there."""
    spec = pod["spec"]
    spec["volumes"] = [one for one in spec["volumes"] if "projected" not in one]
    for container in spec["containers"]:
        container.pop("volumeMounts", None)
    for field in ("serviceAccount", "serviceAccountName", "priority", "preemptionPolicy"):
        spec.pop(field, None)
    spec["automountServiceAccountToken"] = False


def lay_down(api: ControlPlane) -> None:
    """The recorded objects, under the uids that this API server gives."""
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "moving"}})
    account = {"metadata": {"name": "default", "namespace": "moving"}}
    api.request("POST", "/api/v1/namespaces/moving/serviceaccounts", account)
    uids: dict[str, str] = {}
    order = ("StatefulSet", "ControllerRevision", "PersistentVolumeClaim", "Pod")
    for one in sorted(copy.deepcopy(recorded()), key=lambda found: order.index(found["kind"])):
        if one["kind"] == "ControllerRevision" and not one["metadata"]["name"].startswith("st-"):
            continue
        metadata = one["metadata"]
        old, status = metadata["uid"], one.pop("status", None)
        for field in GIVEN_BY_SERVER:
            metadata.pop(field, None)
        for owner in metadata.get("ownerReferences", ()):
            owner["uid"] = uids[owner["uid"]]
        if one["kind"] == "Pod":
            without_projections(one)
        path = PATHS[one["kind"]]
        code, made = api.request("POST", path, one)
        assert code == 201, made
        uids[old] = made["metadata"]["uid"]
        if status is not None:
            if "observedGeneration" in status and one["kind"] == "StatefulSet":
                status["observedGeneration"] = made["metadata"]["generation"]
            name = metadata["name"]
            code = 409
            while code == 409:  # others look at a new claim at once
                code, answer = api.request("GET", f"{path}/{name}")
                code, answer = api.request("PUT", f"{path}/{name}/status", {**answer, "status": status})
            assert code == 200, answer


@pytest.mark.behaviour("AS-42", "AS-63", "AS-70", "AS-109")
def test_taken_over_and_then_changed_and_scaled(tmp_path: Path) -> None:
    # No node of the recorded Pods exists, so the garbage collector of Pods would remove them after a minute.
    with ControlPlane(controller_manager_args=["--controllers=*,-podgc"]) as api:
        install(api)
        lay_down(api)

        def pods() -> dict[str, Json]:
            return {one["metadata"]["name"]: one for one in api.request("GET", PATHS["Pod"])[1]["items"]}

        def remaining() -> dict[str, Json]:
            """The Pods, after those being deleted are removed as their node would."""
            for name, pod in pods().items():
                if "deletionTimestamp" in pod["metadata"]:
                    api.request("DELETE", f"{PATHS['Pod']}/{name}", {"gracePeriodSeconds": 0})
            return pods()

        def seen(**wanted: Any) -> Callable[[], bool]:
            def look() -> bool:
                found = api.request("GET", f"{SETS}/st")[1]
                status = found["status"]
                return status["observedGeneration"] == found["metadata"]["generation"] and all(
                    status.get(key) == value for key, value in wanted.items()
                )

            return look

        def change(**spec: Any) -> None:
            """Replace the object; again after a conflict, since the manager writes its status meanwhile."""
            for _ in range(10):
                found = api.request("GET", f"{SETS}/st")[1]
                code, answer = api.request("PUT", f"{SETS}/st", {**found, "spec": {**found["spec"], **spec}})
                if code != 409:
                    break
            assert code == 200, answer

        before = pods()
        with manager(api, tmp_path / "manager"):
            # A change that asks nothing of any Pod: once it is seen, the set has been worked on.
            change(revisionHistoryLimit=9)
            eventually(seen(replicas=4, updatedReplicas=2), "the set is taken over")
            after = pods()
            assert after.keys() == before.keys()
            for name, pod in after.items():
                assert pod["metadata"]["resourceVersion"] == before[name]["metadata"]["resourceVersion"], name
            revisions = api.request("GET", PATHS["ControllerRevision"])[1]["items"]
            assert sorted(one["metadata"]["name"] for one in revisions) == ["st-6c474b57d", "st-6dbc9b564d"]
            # Scaled: another Pod, under the next ordinal that is not reserved.
            change(replicas=5)
            eventually(lambda: "st-5" in pods(), "st-5 is created")
            assert pods()["st-5"]["metadata"]["labels"]["controller-revision-hash"] == "st-6c474b57d"
            # Changed: Pods of the old revision are updated in place, and nobody else.
            strategy = {
                "partition": 0,
                "maxUnavailable": 3,
                "minReadySeconds": 0,
                "podUpdatePolicy": "InPlaceIfPossible",
            }
            change(replicas=4, updateStrategy={"type": "RollingUpdate", "rollingUpdate": strategy})
            eventually(lambda: "st-5" not in remaining(), "st-5 is gone")

            def updated() -> bool:
                found = pods()
                return all(found[f"st-{n}"]["spec"]["containers"][0]["image"] == "nginx:1.15.1" for n in (0, 2))

            eventually(updated, "st-2 and st-0 are updated in place")
            for name, pod in pods().items():
                assert pod["metadata"]["uid"] == before[name]["metadata"]["uid"]
            # Its claim went with it; until the garbage collector has been there, no other st-5 may come (AS-71).
            claim = f"{PATHS['PersistentVolumeClaim']}/d-st-5"
            eventually(lambda: api.request("GET", claim)[0] == 404, "the claim of st-5 is collected", 180)
            # Reserved: with whenScaled Delete the claim is given to the Pod that goes.
            change(reserveOrdinals=[1, 4])

            def given_away() -> bool:
                claim = api.request("GET", f"{PATHS['PersistentVolumeClaim']}/d-st-4")[1]
                owners = claim["metadata"].get("ownerReferences", [])
                return [one["kind"] for one in owners] == ["Pod"] or "deletionTimestamp" in claim["metadata"]

            eventually(given_away, "the claim goes with its Pod")
            eventually(lambda: remaining().keys() >= {"st-5"} and "st-4" not in pods(), "st-5 takes the place of st-4")
