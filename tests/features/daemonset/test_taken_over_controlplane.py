"""DaemonSets, jobs and node objects left by OpenKruise are taken over on a real API server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.recording import RECORDING
from tests.scenarios.world import eventually, install, manager, running
from tests.taken_over import CONTROLLERS, NAMESPACE, NODES, OURS, begin, create_all, path_of, recorded_in, writes

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]


@contextmanager
def left(folder: Path) -> Iterator[ControlPlane]:
    with ControlPlane(audit_policy=RECORDING, controller_manager_args=CONTROLLERS) as api:
        install(api)
        begin(api)
        create_all(api, recorded_in("11-daemonset-jobs.json", "13-node-agent.json"))
        with running([*NODES, "--kubeconfig", str(api.kubeconfig)], folder / "nodes.log"):
            eventually(lambda: len(api.request("GET", "/api/v1/nodes")[1]["items"]) == 3, "nodes are there")
            yield api


@pytest.mark.behaviour("DS-48", "DS-54", "DS-19", "DS-28", "DS-75", "ACJ-14", "ACJ-16", "BJ-16", "EJ-4", "EJ-3")
@pytest.mark.behaviour("IMG-32", "IMG-46", "IMG-71", "CRR-13")
def test_taken_over_and_then_changed_scaled_and_deleted(tmp_path: Path) -> None:
    with left(tmp_path) as api:

        def get(kind: str, name: str) -> Json:
            code, found = api.request("GET", path_of(kind, name))
            return found if code == 200 else {}

        def named(kind: str, beginning: str) -> dict[str, Json]:
            found = api.request("GET", path_of(kind))[1]["items"]
            return {one["metadata"]["name"]: one for one in found if one["metadata"]["name"].startswith(beginning)}

        def change(kind: str, name: str, **spec: Any) -> None:
            plural = f"{OURS[kind].plural}.apps.kruise.io"
            api.kubectl("patch", plural, name, "-n", NAMESPACE, "--type=merge", "-p", json.dumps({"spec": spec}))

        def counted(**wanted: int) -> Callable[[], bool]:
            def reached() -> bool:
                found = get("DaemonSet", "ds")
                status = found["status"]
                return status["observedGeneration"] == found["metadata"]["generation"] and all(
                    status.get(key) == value for key, value in wanted.items()
                )

            return reached

        def requesters(image: str) -> set[str]:
            entries = (one["spec"].get("images", {}).get(image) for one in named("NodeImage", "").values())
            tags = [tag for entry in entries if entry for tag in entry["tags"]]
            return {owner["name"] for tag in tags for owner in tag["ownerReferences"]}

        def active() -> set[str]:
            return {one["name"] for one in get("AdvancedCronJob", "acj")["status"].get("active", ())}

        before, ended = named("Pod", ""), set(named("Job", "acj-"))
        assert len(before) == 6
        with manager(api, tmp_path / "manager", "--feature-gates=ImagePullJobGate=true"):
            # A change that affects no Pod: once it is observed, the set was reconciled.
            change("DaemonSet", "ds", revisionHistoryLimit=9)
            eventually(counted(updatedNumberScheduled=2, numberAvailable=3), "the DaemonSet is taken over")
            eventually(lambda: not ended & active(), "the AdvancedCronJob is taken over")
            # Only statuses, new NodePodProbes, and a run that has become due.
            expected = re.compile(r"(patch|update) .*/status|create nodepodprobes/node[123]|create jobs/acj-.*")
            assert [one for one in writes(api) if not expected.fullmatch(one)] == []
            assert {name: one["metadata"]["uid"] for name, one in named("Pod", "").items()} == {
                name: one["metadata"]["uid"] for name, one in before.items()
            }
            assert len(named("ControllerRevision", "ds-")) == 2

            # Finish the rollout in place, then select fewer nodes, then delete the set.
            change("DaemonSet", "ds", updateStrategy={"rollingUpdate": {"partition": 0}})
            eventually(counted(updatedNumberScheduled=3, numberAvailable=3), "the last Pod is updated")
            images = {one["spec"]["containers"][0]["image"] for one in named("Pod", "ds-").values()}
            assert (images, set(named("Pod", "ds-"))) == ({"nginx:1.15.1"}, {name for name in before if name[0] == "d"})
            change("DaemonSet", "ds", template={"spec": {"nodeSelector": {"kubernetes.io/hostname": "node1"}}})
            eventually(counted(desiredNumberScheduled=1, numberAvailable=1), "one node is left")
            eventually(lambda: len(named("Pod", "ds-")) == 1, "Pods of the other nodes are gone")
            api.kubectl("delete", "daemonsets.apps.kruise.io", "ds", "-n", NAMESPACE)
            eventually(lambda: not named("Pod", "ds-"), "its Pods are deleted with it")
            eventually(lambda: not named("ControllerRevision", "ds-"), "its revisions are deleted with it")

            # Finished jobs are deleted on request, with their dependents.
            change("BroadcastJob", "bj", completionPolicy={"ttlSecondsAfterFinished": 0})
            eventually(lambda: not named("Pod", "bj-"), "the BroadcastJob is gone with its Pods")
            change("EphemeralJob", "ej", ttlSecondsAfterFinished=0)
            eventually(lambda: not get("EphemeralJob", "ej"), "the EphemeralJob is gone")
            change("AdvancedCronJob", "acj", successfulJobsHistoryLimit=1)
            eventually(lambda: ended - set(named("Job", "acj-")) == {min(ended)}, "the oldest Job is gone")
            eventually(lambda: set(named("Job", "acj-")) - ended, "the next run is created", 90)
            assert {int(name.removeprefix("acj-")) % 60 for name in named("Job", "acj-")} == {0}

            # A NodeImage loses a tag with the last job that requests it.
            assert requesters("nginx") == {"pull"}
            assert len(requesters("busybox")) == 2
            api.kubectl("delete", "imagepulljob", "pull", "-n", NAMESPACE)
            eventually(lambda: not requesters("nginx"), "no job requests nginx")
            change("ImageListPullJob", "pulls", completionPolicy={"ttlSecondsAfterFinished": 0})
            eventually(lambda: not named("ImagePullJob", "pulls-"), "the list is gone with its jobs")
            eventually(lambda: not requesters("busybox"), "no job requests busybox")
            request = get("ContainerRecreateRequest", "crr")
            assert [one["ready"] for one in request["status"]["containerStatusSnapshot"]] == [True]
            api.kubectl("delete", "containerrecreaterequest", "crr", "-n", NAMESPACE)
            assert [one for one in writes(api) if one.startswith("delete pods/") and "/bj-" in one] == []
