"""A WorkloadSpread left by OpenKruise on a real API server: taken over, then changed, scaled and deleted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.features.podunavailablebudget.test_taken_over_controlplane import CONTROLLERS
from tests.openkruise import recorded
from tests.scenarios.world import eventually, install, manager
from tests.taken_over import begin, change, create_all, path_of

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]
RECORD, COST = "apps.kruise.io/matched-workloadspread", "controller.kubernetes.io/pod-deletion-cost"
SPREAD, CLONE_SET = path_of("WorkloadSpread", "ws"), path_of("CloneSet", "spread")
COSTS = {"a": "200", "b": "100"}


def left() -> Iterator[Json]:
    """The spread, its workload and their Pods. The recorded deletion costs are those of a PodProbeMarker, which is not
    there: they are put back to those of the spread."""
    order = ("CloneSet", "ControllerRevision", "Pod", "WorkloadSpread")
    found = [one for one in recorded() if one["kind"] in order and one["metadata"]["name"].startswith(("spread", "ws"))]
    for one in sorted(found, key=lambda one: order.index(one["kind"])):
        if one["kind"] == "Pod":
            annotations = one["metadata"]["annotations"]
            costs = {COST: COSTS[json.loads(annotations[RECORD])["subset"]]}
            yield {**one, "metadata": {**one["metadata"], "annotations": {**annotations, **costs}}}
        else:
            yield one


@pytest.mark.behaviour("WS-33", "WS-50", "WS-60", "WS-63", "WS-55", "WS-74", "WS-49")
def test_taken_over_and_then_changed_scaled_and_deleted(tmp_path: Path) -> None:
    with ControlPlane(controller_manager_args=CONTROLLERS) as api:
        install(api)
        begin(api)
        create_all(api, left())

        def pods() -> dict[str, Json]:
            found = api.request("GET", path_of("Pod"))[1]["items"]
            return {pod["metadata"]["name"]: pod for pod in found if not pod["metadata"].get("deletionTimestamp")}

        def versions() -> dict[str, str]:
            return {name: pod["metadata"]["resourceVersion"] for name, pod in pods().items()}

        def costs() -> Counter[tuple[str, str]]:
            annotations = [pod["metadata"]["annotations"] for pod in pods().values()]
            return Counter((json.loads(one[RECORD])["subset"], one[COST]) for one in annotations)

        def counts() -> dict[str, tuple[int, int]]:
            status = api.request("GET", SPREAD)[1]["status"]
            return {one["name"]: (one["replicas"], one["missingReplicas"]) for one in status["subsetStatuses"]}

        def allow(places: int) -> None:
            first, second = api.request("GET", SPREAD)[1]["spec"]["subsets"]
            change(api, SPREAD, subsets=[{**first, "maxReplicas": places}, second])

        before, spread = versions(), api.request("GET", SPREAD)[1]
        assert len(before) == 5
        with manager(api, tmp_path / "manager"):
            # The status is correct, so nothing is written until something changes.
            assert api.request("GET", SPREAD)[1] == spread
            allow(3)
            eventually(lambda: counts() == {"a": (2, 1), "b": (3, -1)}, "the status follows the change")
            assert versions() == before, "no Pod was written"
            allow(1)
            priced = {("a", "200"): 1, ("a", "-100"): 1, ("b", "100"): 3}
            eventually(lambda: costs() == priced, "one Pod exceeds its subset")
            assert sum(before[name] != version for name, version in versions().items()) == 1
            change(api, CLONE_SET, replicas=3)
            eventually(
                lambda: counts() == {"a": (1, 0), "b": (2, -1)}, "the excess Pod is deleted first, then the last", 30
            )
            change(api, CLONE_SET, replicas=5)
            eventually(lambda: costs() == {("a", "200"): 1, ("b", "100"): 4}, "new Pods fill the free places", 30)
            assert api.request("DELETE", SPREAD)[0] == 200
            kept = versions()
            change(api, CLONE_SET, replicas=6)
            eventually(lambda: len(pods()) == 6, "the new Pod is in no subset", 30)
            (new,) = versions().keys() - kept.keys()
            assert RECORD not in pods()[new]["metadata"].get("annotations", {})
            assert {name: version for name, version in versions().items() if name != new} == kept
