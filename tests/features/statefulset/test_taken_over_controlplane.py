"""A StatefulSet left by OpenKruise is taken over, changed and scaled on a real API server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.features.statefulset.test_takeover import recorded
from tests.scenarios.world import eventually, install, manager
from tests.taken_over import begin, change, create_all, path_of

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]
SET, PODS = path_of("StatefulSet", "st"), path_of("Pod")


@pytest.mark.behaviour("PM-80", "AS-63", "AS-70", "AS-109")
def test_taken_over_and_then_changed_and_scaled(tmp_path: Path) -> None:
    # No node of the recorded Pods exists, so the garbage collector of Pods would remove them after a minute.
    with ControlPlane(controller_manager_args=["--controllers=*,-podgc"]) as api:
        install(api)
        begin(api)
        create_all(api, recorded())

        def pods() -> dict[str, Json]:
            return {one["metadata"]["name"]: one for one in api.request("GET", PODS)[1]["items"]}

        def remaining() -> dict[str, Json]:
            """The Pods, after those being deleted are removed as their node would."""
            for name, pod in pods().items():
                if "deletionTimestamp" in pod["metadata"]:
                    api.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
            return pods()

        def seen(**wanted: Any) -> Callable[[], bool]:
            def look() -> bool:
                found = api.request("GET", SET)[1]
                status = found["status"]
                return status["observedGeneration"] == found["metadata"]["generation"] and all(
                    status.get(key) == value for key, value in wanted.items()
                )

            return look

        before = pods()
        with manager(api, tmp_path / "manager"):
            # A change that affects no Pod: once it is observed, the set was reconciled.
            change(api, SET, revisionHistoryLimit=9)
            eventually(seen(replicas=4, updatedReplicas=2), "the set is taken over")
            after = pods()
            assert after.keys() == before.keys()
            for name, pod in after.items():
                assert pod["metadata"]["resourceVersion"] == before[name]["metadata"]["resourceVersion"], name
            revisions = api.request("GET", path_of("ControllerRevision"))[1]["items"]
            assert sorted(one["metadata"]["name"] for one in revisions) == ["st-6c474b57d", "st-6dbc9b564d"]
            # Scaled: another Pod, under the next ordinal that is not reserved.
            change(api, SET, replicas=5)
            eventually(lambda: "st-5" in pods(), "st-5 is created")
            assert pods()["st-5"]["metadata"]["labels"]["controller-revision-hash"] == "st-6c474b57d"
            # Changed: Pods of the old revision are updated in place, and no others.
            strategy = {
                "partition": 0,
                "maxUnavailable": 3,
                "minReadySeconds": 0,
                "podUpdatePolicy": "InPlaceIfPossible",
            }
            change(api, SET, replicas=4, updateStrategy={"type": "RollingUpdate", "rollingUpdate": strategy})
            eventually(lambda: "st-5" not in remaining(), "st-5 is gone")

            def updated() -> bool:
                found = pods()
                return all(found[f"st-{n}"]["spec"]["containers"][0]["image"] == "nginx:1.15.1" for n in (0, 2))

            eventually(updated, "st-2 and st-0 are updated in place")
            for name, pod in pods().items():
                assert pod["metadata"]["uid"] == before[name]["metadata"]["uid"]
            # No new st-5 is created until its claim is garbage collected (AS-71).
            claim = path_of("PersistentVolumeClaim", "d-st-5")
            eventually(lambda: api.request("GET", claim)[0] == 404, "the claim of st-5 is collected", 180)
            # Reserved: with whenScaled Delete the claim is owned by the deleted Pod.
            change(api, SET, reserveOrdinals=[1, 4])

            def given_away() -> bool:
                claim = api.request("GET", path_of("PersistentVolumeClaim", "d-st-4"))[1]
                owners = claim["metadata"].get("ownerReferences", [])
                return [one["kind"] for one in owners] == ["Pod"] or "deletionTimestamp" in claim["metadata"]

            eventually(given_away, "the claim is owned by its Pod")
            eventually(lambda: remaining().keys() >= {"st-5"} and "st-4" not in pods(), "st-5 takes the place of st-4")
