"""Finished and running jobs of OpenKruise are taken over on a real API server, and new ones run."""

from __future__ import annotations

import copy
import json
import re
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.recording import RECORDING
from tests.scenarios.world import eventually, install, manager, running
from tests.taken_over import CONTROLLERS, OURS, begin, create_all, path_of, recorded_in, writes

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]
ENDED, UNDER_WAY = "moving", "midway"
NODES = ("app.sandbox.nodes", "--nodes", "3", "--bind")
#: Keeps the node controller from tainting nodes on a busy machine, because BroadcastJobs skip tainted nodes.
PATIENT = (*CONTROLLERS, "--node-monitor-grace-period=10m")
KINDS = ("BroadcastJob", "AdvancedCronJob", "EphemeralJob")
#: Writes of the AdvancedCronJob's next run, which may become due at any time during the test.
_RUN = re.compile(r"patch advancedcronjobs/acj/status|create jobs/acj-\d+")
LONG = ["/bin/sh", "-c", "sleep 3600"]


def recorded() -> list[Json]:
    """Return the recorded jobs with their Jobs and Pods, and the Pods that the EphemeralJob selects, without owners."""
    jobs = [
        one
        for one in recorded_in("11-daemonset-jobs.json")
        if one["kind"] in (*KINDS, "Job") or one["metadata"]["name"].startswith("bj-")
    ]
    selected = [one for one in recorded_in("14-united-distribution.json") if one["kind"] == "Pod"]
    for pod in selected:
        del pod["metadata"]["ownerReferences"]
    assert (len(jobs), len(selected)) == (8, 4)
    return [*jobs, *selected]


def under_way(ended: list[Json]) -> list[Json]:
    """Return the jobs as a moment earlier: each has one running part, and its limit allows no other."""
    items = copy.deepcopy(ended)

    def one_of(kind: str) -> Json:
        return next(one for one in items if one["kind"] == kind)

    served = [one for one in items if "broadcastjob-name" in one["metadata"].get("labels", {})]
    job, runs, unserved = one_of("BroadcastJob"), served[1], served[0]
    items.remove(unserved)
    job["spec"]["parallelism"] = 1
    began = job["status"]["startTime"]
    job["status"] = {"active": 1, "desired": 3, "failed": 0, "phase": "running", "startTime": began, "succeeded": 1}
    runs["spec"]["containers"][0]["command"] = LONG
    runs["status"]["phase"] = "Running"
    for condition in runs["status"]["conditions"]:
        condition.pop("reason", None)
        condition["status"] = "True"
    (main,) = runs["status"]["containerStatuses"]
    main |= {"ready": True, "started": True, "state": still(main["state"])}

    one_of("AdvancedCronJob")["spec"]["concurrencyPolicy"] = "Forbid"
    last = max((one for one in items if one["kind"] == "Job"), key=lambda one: str(one["metadata"]["name"]))
    last["status"] = {"active": 1, "ready": 1, "startTime": last["status"]["startTime"]}

    job = one_of("EphemeralJob")
    began, conditions = job["status"]["startTime"], job["status"]["conditions"][:1]
    counts = {"failed": 0, "match": 1, "running": 1, "succeeded": 0, "waiting": 0}
    job["status"] = {"conditions": conditions, "phase": "Running", "startTime": began, **counts}
    pod = next(one for one in items if one.get("spec", {}).get("ephemeralContainers"))
    pod["spec"]["ephemeralContainers"][0]["command"] = LONG
    (added,) = pod["status"]["ephemeralContainerStatuses"]
    added["state"] = still(added["state"])
    return items


def still(state: Mapping[str, Any]) -> Json:
    """Return a container's state before it terminated."""
    return {"running": {"startedAt": state["terminated"]["startedAt"]}}


@dataclass
class Place:
    """One namespace: reads and changes of its objects."""

    api: ControlPlane
    namespace: str

    def get(self, kind: str, name: str) -> Json:
        code, found = self.api.request("GET", path_of(kind, name, self.namespace))
        return found if code == 200 else {}

    def status(self, kind: str, name: str, *keys: str) -> tuple[Any, ...]:
        status = self.get(kind, name)["status"]
        return tuple(status.get(key) for key in keys)

    def all(self, kind: str, beginning: str = "") -> dict[str, Json]:
        found = self.api.request("GET", path_of(kind, namespace=self.namespace))[1]["items"]
        return {one["metadata"]["name"]: one for one in found if one["metadata"]["name"].startswith(beginning)}

    def pods(self) -> dict[str, tuple[Any, ...]]:
        """Return each Pod by name without its status, which its node writes."""
        parts = ("uid", "generation", "labels", "annotations", "ownerReferences", "finalizers")
        return {
            name: (*(one["metadata"].get(part) for part in parts), one["spec"]) for name, one in self.all("Pod").items()
        }

    def change(self, kind: str, name: str, **spec: Any) -> None:
        patch = json.dumps({"spec": spec})
        self.api.kubectl("patch", self._plural(kind), name, "-n", self.namespace, "--type=merge", "-p", patch)

    def delete(self, kind: str, name: str) -> None:
        self.api.kubectl("delete", self._plural(kind), name, "-n", self.namespace, "--timeout=60s")

    def debugged(self) -> set[str]:
        return {name for name, one in self.all("Pod").items() if one["spec"].get("ephemeralContainers")}

    def stay(self, beginning: str) -> set[str]:
        found = self.all("Pod", beginning).items()
        return {name for name, one in found if "deletionTimestamp" not in one["metadata"]}

    def active(self) -> set[str]:
        return {one["name"] for one in self.get("AdvancedCronJob", "acj")["status"].get("active") or ()}

    def written(self) -> list[str]:
        """Return the manager's writes in this namespace, except of the objects that every node has."""
        return [
            one for one in writes(self.api, self.namespace) if "nodepodprobes" not in one and "nodeimages" not in one
        ]

    def _plural(self, kind: str) -> str:
        return f"{OURS[kind].plural}.apps.kruise.io"


def once_each(written: Iterable[str]) -> list[str]:
    """Drop repetitions: a deletion may be repeated until the cache shows it."""
    return list(dict.fromkeys(written))


@contextmanager
def left(folder: Path) -> Iterator[ControlPlane]:
    with ControlPlane(audit_policy=RECORDING, controller_manager_args=PATIENT) as api:
        install(api)
        api.restart_controller_manager()  # its garbage collector discovers the kinds of jobs only at startup
        ended = recorded()
        for namespace, items in ((ENDED, ended), (UNDER_WAY, under_way(ended))):
            begin(api, namespace)
            create_all(api, items, namespace)
        with running([*NODES, "--kubeconfig", str(api.kubeconfig)], folder / "nodes.log"):

            def three() -> bool:
                nodes = api.request("GET", "/api/v1/nodes")[1]["items"]
                return len(nodes) == 3 and not any(one["spec"].get("taints") for one in nodes)

            eventually(three, "nodes are there")
            yield api


def idle(metrics: str) -> bool:
    """Return whether each controller has reconciled both of its jobs and has an empty queue."""
    with urllib.request.urlopen(metrics, timeout=120) as answer:
        lines = answer.read().decode().splitlines()

    def total(series: str, label: str, controller: str) -> float:
        begin = f'{series}{{{label}="{controller}"'
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(begin))

    return all(
        total("controller_runtime_reconcile_total", "controller", one) >= 2
        and not total("workqueue_depth", "name", one)
        and not total("controller_runtime_active_workers", "controller", one)
        for one in (f"{kind.lower()}-controller" for kind in KINDS)
    )


def _continue_broadcast_job(place: Place) -> None:
    """Each node gets one Pod, no matter which manager created it; the Pods are deleted with the job."""
    there = place.stay("bj-")
    place.change("BroadcastJob", "bj", parallelism=2)
    counts = ("active", "succeeded", "desired", "phase")
    eventually(lambda: place.status("BroadcastJob", "bj", *counts) == (1, 2, 3, "running"), "the last node gets a Pod")
    found = place.all("Pod", "bj-")
    assert sorted(one["spec"]["nodeName"] for one in found.values()) == ["node1", "node2", "node3"]
    (new,) = found.keys() - there
    # The new Pod's KruisePodReady is written by the manager too.
    assert {one for one in place.written() if "pods/" in one} <= {f"create pods/{new}", f"patch pods/{new}/status"}
    place.delete("BroadcastJob", "bj")
    eventually(lambda: not place.stay("bj-"), "its Pods are deleted with it")


def _continue_ephemeral_job(place: Place) -> None:
    """A second Pod is selected and gets the container once parallelism allows; containers outlive the job."""
    (first,) = place.debugged()
    place.change("EphemeralJob", "ej", replicas=2)
    counts = ("match", "running", "succeeded", "phase")
    eventually(lambda: place.status("EphemeralJob", "ej", *counts) == (2, 1, 0, "Running"), "a second Pod is selected")
    assert place.debugged() == {first}
    place.change("EphemeralJob", "ej", parallelism=2)
    eventually(lambda: place.status("EphemeralJob", "ej", *counts) == (2, 1, 1, "Running"), "it has the container")
    (second,) = place.debugged() - {first}
    place.delete("EphemeralJob", "ej")
    assert place.debugged() == {first, second}
    of_it = (one for one in place.written() if ("/ej" in one and "/status" not in one) or "/ephemeral" in one)
    # The job first records which Pod it starts with, then the Pod is patched. At the end the finalizer is removed.
    assert [one for one, _ in groupby(of_it)] == [
        "patch ephemeraljobs/ej",
        f"patch pods/{second}/ephemeralcontainers",
        "patch ephemeraljobs/ej",
    ]


def _continue_cron_job(place: Place, ended: Place) -> None:
    """A Job that OpenKruise started delays the next one until it ends."""
    done, runs = sorted(place.all("Job"))
    place.change("AdvancedCronJob", "acj", schedule="@every 2s")
    eventually(
        lambda: [one for one in place.all("Event", "acj").values() if one["reason"] == "JobAlreadyActive"],
        "a run is delayed",
    )
    assert set(place.all("Job")) == {done, runs}
    # Complete the Job with its recorded status, in place of the Job controller.
    path = path_of("Job", f"{runs}/status", place.namespace)
    code, answer = place.api.request(
        "PUT", path, {**place.get("Job", runs), "status": ended.get("Job", runs)["status"]}
    )
    assert code == 200, answer
    eventually(lambda: len(place.all("Job")) == 3, "the delayed run starts")
    (new,) = place.all("Job").keys() - {done, runs}
    place.change("AdvancedCronJob", "acj", paused=True, successfulJobsHistoryLimit=1)
    eventually(lambda: set(place.all("Job")) == {runs, new}, "the oldest finished Job is deleted")
    assert place.status("AdvancedCronJob", "acj", "type") == ("Job",)
    place.delete("AdvancedCronJob", "acj")
    eventually(lambda: not place.all("Job"), "its Jobs are deleted with it")
    of_jobs = [one for one in place.written() if "jobs/acj-" in one]
    assert once_each(of_jobs) == [f"create jobs/{new}", f"delete jobs/{done}"]


def _keep_finished_jobs(place: Place) -> None:
    """Changes of finished jobs restart nothing. Their history can be shortened, and they can be deleted."""
    first, second = sorted(place.all("Job"))[:2]
    debugged, pods = place.debugged(), place.pods()
    place.change("BroadcastJob", "bj", parallelism=1)
    place.change("EphemeralJob", "ej", replicas=4, parallelism=4)
    place.change("AdvancedCronJob", "acj", paused=True, successfulJobsHistoryLimit=1)
    eventually(lambda: first not in place.all("Job"), "the oldest Job is deleted")
    assert second in place.all("Job")
    assert place.pods() == pods
    for kind, name in (("BroadcastJob", "bj"), ("EphemeralJob", "ej"), ("AdvancedCronJob", "acj")):
        place.delete(kind, name)
    eventually(lambda: not place.stay("bj-") and not place.all("Job"), "their Pods and Jobs are deleted with them")
    assert place.debugged() == debugged
    rest = [one for one in place.written() if not _RUN.fullmatch(one)]
    assert once_each(rest) == [f"delete jobs/{first}", "patch ephemeraljobs/ej"]


@pytest.mark.behaviour("BJ-4", "BJ-7", "BJ-12", "ACJ-5", "ACJ-14", "ACJ-16", "ACJ-18", "ACJ-27")
@pytest.mark.behaviour("EJ-3", "EJ-6", "EJ-9", "EJ-17")
def test_taken_over_and_then_changed_scaled_and_deleted(tmp_path: Path) -> None:
    with left(tmp_path) as api:
        ended, midway = Place(api, ENDED), Place(api, UNDER_WAY)
        done = set(ended.all("Job"))
        before = {place.namespace: place.pods() for place in (ended, midway)}
        assert [len(pods) for pods in before.values()] == [7, 6]
        with manager(api, tmp_path / "manager") as addresses:
            eventually(lambda: idle(addresses["metrics"]), "all jobs are taken over")
            eventually(lambda: not done & ended.active(), "Jobs that have ended are not active")
            # The status names the running Job's resourceVersion, which differs in this cluster.
            assert set(midway.written()) <= {"patch advancedcronjobs/acj/status"}
            # Except a Job that the recording lists as active, and a run that has become due.
            assert [one for one in ended.written() if not _RUN.fullmatch(one)] == []
            assert {place.namespace: place.pods() for place in (ended, midway)} == before

            _continue_broadcast_job(midway)
            _continue_ephemeral_job(midway)
            _continue_cron_job(midway, ended)
            _keep_finished_jobs(ended)
