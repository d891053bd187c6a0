"""DaemonSets, jobs and node objects that OpenKruise left, on a real API server: taken over, then ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.api.advancedcronjob import ADVANCED_CRON_JOB
from app.api.broadcastjob import BROADCAST_JOB
from app.api.containerrecreate import CONTAINER_RECREATE_REQUEST
from app.api.conversion import convert
from app.api.daemonset import DAEMON_SET
from app.api.ephemeraljob import EPHEMERAL_JOB
from app.api.imagepull import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.recording import RECORDING
from tests.openkruise import FOLDER, bare
from tests.scenarios.world import eventually, install, manager, running

pytestmark = pytest.mark.controlplane
Json = dict[str, Any]
NAMESPACE = "moving"
OURS = {
    kind.kind: kind.resource()
    for kind in (
        DAEMON_SET,
        BROADCAST_JOB,
        ADVANCED_CRON_JOB,
        EPHEMERAL_JOB,
        IMAGE_LIST_PULL_JOB,
        IMAGE_PULL_JOB,
        NODE_IMAGE,
        CONTAINER_RECREATE_REQUEST,
    )
}
NATIVE = {
    "Pod": "/api/v1/namespaces/moving/pods",
    "ControllerRevision": "/apis/apps/v1/namespaces/moving/controllerrevisions",
    "Job": "/apis/batch/v1/namespaces/moving/jobs",
}
#: An owner stands before what it owns.
ORDER = ("DaemonSet", "BroadcastJob", "AdvancedCronJob", "EphemeralJob", "ControllerRevision", "Job", "Pod")
ORDER += ("ImageListPullJob", "ImagePullJob", "ContainerRecreateRequest", "NodeImage")
#: The kubelets run what is there as they find it; only the sandbox's scheduler binds.
NODES = ["app.sandbox.nodes", "--nodes", "3", "--bind", "--agents"]
#: Jobs were done when they were recorded.
_CONTROLLERS = ["--controllers=*,-job-controller"]
_TIME = re.compile(r"2026-11-22T14:\d\d:\d\dZ")


def path_of(kind: str, name: str = "") -> str:
    if kind in NATIVE:
        path = NATIVE[kind]
    else:
        resource = OURS[kind]
        where = f"namespaces/{NAMESPACE}/" if resource.namespaced else ""
        path = f"/apis/{resource.api_version}/{where}{resource.plural}"
    return f"{path}/{name}" if name else path


def as_if_just_now(text: str, now: datetime) -> str:
    """The recording with its last minute being this one: nothing of it is over yet."""
    last = datetime(2026, 11, 22, 14, 10, tzinfo=UTC)
    shift = now.replace(second=0, microsecond=0) - last

    def later(found: re.Match[str]) -> str:
        return f"{datetime.strptime(found.group(), '%Y-%m-%dT%H:%M:%S%z') + shift:%Y-%m-%dT%H:%M:%SZ}"

    text = re.sub(r"acj-(\d{10})", lambda one: f"acj-{int(one[1]) + int(shift / timedelta(seconds=1))}", text)
    return _TIME.sub(later, text)


def lay_down(api: ControlPlane) -> None:
    """The recorded objects with their statuses, under the uids that this API server gives."""
    files = ("11-daemonset-jobs.json", "13-node-agent.json")
    texts = [as_if_just_now((FOLDER / name).read_text("utf-8"), datetime.now(UTC)) for name in files]
    items = [one for text in texts for one in json.loads(text)["items"]]
    uids: dict[str, str] = {}
    for item in sorted(items, key=lambda one: ORDER.index(one["kind"])):
        kind = item["kind"]
        owners = [
            {**one, "uid": uids[one["uid"]]}
            for one in item["metadata"].get("ownerReferences", ())
            if one["uid"] in uids
        ]
        if "ownerReferences" in item["metadata"] and not owners:
            continue  # of a workload that is not here
        made = bare(item)
        if kind == "NodeImage":
            made = json.loads(_with(uids, json.dumps(made)))
            for entry in made["spec"]["images"].values():
                for tag in entry["tags"]:
                    tag["ownerReferences"] = [one for one in tag["ownerReferences"] if one["uid"] in uids.values()]
        if owners:
            made["metadata"]["ownerReferences"] = owners
        if kind == "Job":
            # Its labels and its selector are its uid, which the API server gives.
            made["metadata"].pop("labels")
            made["spec"].pop("selector")
            made["spec"]["template"]["metadata"].pop("labels")
        if kind in OURS and made["apiVersion"] != OURS[kind].api_version:
            made = convert({**made, "status": item.get("status", {})}, OURS[kind].api_version)
            item["status"] = made.pop("status")
        code, answer = api.request("POST", path_of(kind), made)
        assert code == 201, (kind, answer)
        uids[item["metadata"]["uid"]] = answer["metadata"]["uid"]
        if status := item.get("status"):
            status = json.loads(_with(uids, json.dumps(status)))
            if "observedGeneration" in status:
                status["observedGeneration"] = answer["metadata"]["generation"]
            name, code = answer["metadata"]["name"], 409
            while code == 409:  # others look at a new Job at once
                found = api.request("GET", path_of(kind, name))[1]
                code, answer = api.request("PUT", path_of(kind, f"{name}/status"), {**found, "status": status})
            assert code == 200, (kind, answer)


def _with(uids: dict[str, str], text: str) -> str:
    for old, new in uids.items():
        text = text.replace(old, new)
    return text


def writes(api: ControlPlane) -> list[str]:
    """What the manager has written in the namespace and of NodeImages and NodePodProbes: verb, and what."""
    found = []
    for line in api.audit_log.read_text("utf-8").splitlines():
        entry = json.loads(line)
        about = entry.get("objectRef", {})
        if entry["verb"] in ("get", "list", "watch") or about.get("resource") in ("events", "leases"):
            continue
        if about.get("namespace") == NAMESPACE or about.get("resource") in ("nodeimages", "nodepodprobes"):
            sub = f"/{about['subresource']}" if "subresource" in about else ""
            found.append(f"{entry['verb']} {about['resource']}/{about.get('name', '')}{sub}")
    return found


@contextmanager
def left(folder: Path) -> Iterator[ControlPlane]:
    with ControlPlane(audit_policy=RECORDING, controller_manager_args=_CONTROLLERS) as api:
        install(api)
        api.kubectl("create", "namespace", NAMESPACE)
        api.kubectl("wait", "--for=create", "-n", NAMESPACE, "serviceaccount/default", "--timeout=30s")
        lay_down(api)
        with running([*NODES, "--kubeconfig", str(api.kubeconfig)], folder / "nodes.log"):
            eventually(lambda: len(api.request("GET", "/api/v1/nodes")[1]["items"]) == 3, "nodes are there")
            yield api


@pytest.mark.behaviour("DS-48", "DS-54", "DS-19", "DS-28", "DS-75", "ACJ-14", "ACJ-16", "BJ-16", "EJ-4", "EJ-3")
@pytest.mark.behaviour("IMG-32", "IMG-46", "IMG-71", "CRR-13")
def test_taken_over_then_changed_scaled_and_deleted(tmp_path: Path) -> None:
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
            def look() -> bool:
                found = get("DaemonSet", "ds")
                status = found["status"]
                return status["observedGeneration"] == found["metadata"]["generation"] and all(
                    status.get(key) == value for key, value in wanted.items()
                )

            return look

        def asked_for(image: str) -> set[str]:
            """Who asks for the image's tags, on any node."""
            entries = (one["spec"].get("images", {}).get(image) for one in named("NodeImage", "").values())
            tags = [tag for entry in entries if entry for tag in entry["tags"]]
            return {owner["name"] for tag in tags for owner in tag["ownerReferences"]}

        def active() -> set[str]:
            return {one["name"] for one in get("AdvancedCronJob", "acj")["status"].get("active", ())}

        before, ended = named("Pod", ""), set(named("Job", "acj-"))
        assert len(before) == 6
        with manager(api, tmp_path / "manager", "--feature-gates=ImagePullJobGate=true"):
            # A change that asks nothing of any Pod: once it is seen, the set has been worked on.
            change("DaemonSet", "ds", revisionHistoryLimit=9)
            eventually(counted(updatedNumberScheduled=2, numberAvailable=3), "the DaemonSet is taken over")
            eventually(lambda: not ended & active(), "the AdvancedCronJob is")
            # A NodePodProbe for each node is new; a run that is due by now is one.
            expected = re.compile(r"(patch|update) .*/status|create nodepodprobes/node[123]|create jobs/acj-.*")
            assert [one for one in writes(api) if not expected.fullmatch(one)] == []
            assert {name: one["metadata"]["uid"] for name, one in named("Pod", "").items()} == {
                name: one["metadata"]["uid"] for name, one in before.items()
            }
            assert len(named("ControllerRevision", "ds-")) == 2

            # The rest of the roll-out, in place; then fewer nodes; then none.
            change("DaemonSet", "ds", updateStrategy={"rollingUpdate": {"partition": 0}})
            eventually(counted(updatedNumberScheduled=3, numberAvailable=3), "the last Pod is updated")
            images = {one["spec"]["containers"][0]["image"] for one in named("Pod", "ds-").values()}
            assert (images, set(named("Pod", "ds-"))) == ({"nginx:1.15.1"}, {name for name in before if name[0] == "d"})
            change("DaemonSet", "ds", template={"spec": {"nodeSelector": {"kubernetes.io/hostname": "node1"}}})
            eventually(counted(desiredNumberScheduled=1, numberAvailable=1), "one node is left")
            eventually(lambda: len(named("Pod", "ds-")) == 1, "Pods of the other nodes are gone")
            api.kubectl("delete", "daemonsets.apps.kruise.io", "ds", "-n", NAMESPACE)
            eventually(lambda: not named("Pod", "ds-"), "its Pods go with it")
            eventually(lambda: not named("ControllerRevision", "ds-"), "its revisions go with it")

            # Jobs that have ended go when that is asked, with what is theirs.
            change("BroadcastJob", "bj", completionPolicy={"ttlSecondsAfterFinished": 0})
            eventually(lambda: not named("Pod", "bj-"), "the BroadcastJob is gone with its Pods")
            change("EphemeralJob", "ej", ttlSecondsAfterFinished=0)
            eventually(lambda: not get("EphemeralJob", "ej"), "the EphemeralJob is gone")
            change("AdvancedCronJob", "acj", successfulJobsHistoryLimit=1)
            eventually(lambda: ended - set(named("Job", "acj-")) == {min(ended)}, "the oldest Job is gone")
            eventually(lambda: set(named("Job", "acj-")) - ended, "the next run is created", 90)
            assert {int(name.removeprefix("acj-")) % 60 for name in named("Job", "acj-")} == {0}

            # Of node objects too: a tag goes with the last job that asks for it.
            assert asked_for("nginx") == {"pull"}
            assert len(asked_for("busybox")) == 2
            api.kubectl("delete", "imagepulljob", "pull", "-n", NAMESPACE)
            eventually(lambda: not asked_for("nginx"), "nobody asks for nginx")
            change("ImageListPullJob", "pulls", completionPolicy={"ttlSecondsAfterFinished": 0})
            eventually(lambda: not named("ImagePullJob", "pulls-"), "the list is gone with its jobs")
            eventually(lambda: not asked_for("busybox"), "nobody asks for busybox")
            request = get("ContainerRecreateRequest", "crr")
            assert [one["ready"] for one in request["status"]["containerStatusSnapshot"]] == [True]
            api.kubectl("delete", "containerrecreaterequest", "crr", "-n", NAMESPACE)
            assert [one for one in writes(api) if one.startswith("delete pods/") and "/bj-" in one] == []
