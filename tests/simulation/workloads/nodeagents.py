"""Node agents: ImagePullJobs, ContainerRecreateRequests and probes, and their invariants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from random import Random
from typing import Any

from app.daemon.objects import RecreateRequest
from app.features.imagepull.kind import IMAGE_PULL_JOB
from app.kube.images import familiar_image
from tests.simulation import invariants
from tests.simulation.agents import CONDITION, CONTAINERS, JudgeOfAgents, NodeAgents
from tests.simulation.script import NAMESPACE, Action
from tests.simulation.workloads.judge import Write
from tests.simulation.workloads.subject import Shares, Workload, given

Json = dict[str, Any]
#: Repository and tag.
Key = tuple[str, str]

FOLDERS = (
    "app.features.podreadiness",
    "app.features.imagepull",
    "app.features.containerrecreate",
    "app.features.podprobe",
)
KIND = IMAGE_PULL_JOB.kind
NODES = ("node1", "node2", "node3")
PODS = ("web-0", "web-1", "web-2", "web-3")
_ENDED = ("Succeeded", "Failed")


class NodeAgentJudge(JudgeOfAgents):
    """A request stops each container once and never one of another Pod; jobs respect parallelism; finished pulls are
    not repeated; no Pod gets the probe result of another."""

    def __init__(self) -> None:
        self._live: dict[str, dict[str, Json]] = {}
        #: By uid of a job: the largest parallelism that it has had.
        self._most: dict[str, int] = {}
        #: By uid of a request and container name: the containers stopped for it.
        self._stopped: dict[tuple[str, str], set[str]] = {}
        #: By node and tag: the job that started the current pull.
        self._asked_by: dict[tuple[str, Key], str] = {}

    # ---- calls of agents to runtimes

    def stops(self, request: RecreateRequest | None, name: str, pod_uid: str, container_id: str) -> Iterator[str]:
        if request is None:
            yield f"container {container_id} is stopped without a request"
            return
        metadata, spec = request.metadata, request.spec
        what = f"{metadata.name} stops container {name} of Pod {spec.pod_name}"
        if pod_uid != metadata.labels.pod_uid:
            yield f"{what}, which belongs to a namesake"
        stopped = self._stopped.setdefault((metadata.uid, name), set())
        stopped.add(container_id)
        if len(stopped) > 1:
            yield f"{what} a second time"
        meant = next(one.status_context.container_id for one in spec.containers if one.name == name)
        if not spec.strategy.force_recreate and container_id != meant:
            yield f"{what}, which has restarted since the request"

    def pulls(self, node: str, reference: str) -> Iterator[str]:
        image = familiar_image(reference)
        node_image = next((one for one in self._all("NodeImage") if invariants.name(one) == node), None)
        if image is None or node_image is None:
            return
        key = (image.name, image.tag)
        tag = tags_of(node_image).get(key)
        if tag is not None and is_done(tag, status_of(node_image, key)):
            yield f"{node} pulls {reference} again after {status_of(node_image, key)['phase']}"

    # ---- writes

    def wrote(self, write: Write) -> Iterator[str]:
        kind, uid, before, after = write.kind, write.uid, write.before, write.after
        write.kept_in(self._live.setdefault(kind, {}))
        if after is None:
            return
        if kind == KIND:
            self._most[uid] = max(self._most.get(uid, 0), int(after["spec"].get("parallelism", 1)))
        elif kind == "NodeImage" and before is not None:
            yield from self._forgotten(before, after)
            yield from self._asked(before, after)
        elif kind == "NodePodProbe":
            yield from strange_results(after)
        elif kind == "Pod":
            who = condition(after)
            if who.get("status") == "True" and who.get("message") != uid:
                yield f"Pod {invariants.name(after)} {uid} has the probe result of {who.get('message')}"

    def _forgotten(self, before: Json, after: Json) -> Iterator[str]:
        had = tags_of(before)
        for key, tag in tags_of(after).items():
            former, was, now = had.get(key), status_of(before, key), status_of(after, key)
            same = former is not None and former.get("version", 0) == tag.get("version", 0)
            if same and is_done(tag, was) and was != now:
                yield f"NodeImage {invariants.name(after)}: {':'.join(key)} went from {was['phase']} to {now}"

    def _asked(self, before: Json, after: Json) -> Iterator[str]:
        """A job pulls on at most ``parallelism`` nodes. A new pull of a tag counts for the job that started it."""
        had, node = tags_of(before), invariants.name(after)
        for key, tag in tags_of(after).items():
            for uid in owners_of(tag) - owners_of(had.get(key, {})):
                self._asked_by[node, key] = uid
                busy = sum(self._pulls_for(one, key, uid) for one in self._all("NodeImage"))
                if busy > self._most.get(uid, busy):
                    yield f"{':'.join(key)} is pulled by one node too many: {busy}, {self._most[uid]} allowed"

    def _pulls_for(self, node_image: Json, key: Key, uid: str) -> bool:
        return self._asked_by.get((invariants.name(node_image), key)) == uid and is_active(node_image, key, uid)

    def _all(self, kind: str) -> Iterable[Json]:
        return self._live.get(kind, {}).values()

    # ---- at rest

    def at_rest(self, now: datetime) -> Iterable[str]:
        """Jobs and requests have ended, and every Pod has its own probe result."""
        for one in self._all(KIND):
            yield from job_at_rest(one)
        for one in self._all("ContainerRecreateRequest"):
            what, status = f"request {invariants.name(one)} at rest:", one.get("status") or {}
            if not status.get("completionTime"):
                yield f"{what} has not ended: {status}"
            elif one["spec"].get("ttlSecondsAfterFinished") is not None:
                yield f"{what} has ended and was not deleted"
        for one in self._all("NodeImage"):
            yield from node_image_at_rest(one)
        pods = {uid: pod for uid, pod in self._live.get("Pod", {}).items() if pod["metadata"]["namespace"] == NAMESPACE}
        for one in self._all("NodePodProbe"):
            for entry in one["spec"].get("podProbes") or ():
                if entry["uid"] not in pods:
                    yield f"{invariants.name(one)} at rest: still probes {entry['name']} {entry['uid']}"
        for uid, pod in pods.items():
            who = condition(pod)
            if (who.get("status"), who.get("message")) != ("True", uid):
                yield f"Pod {invariants.name(pod)} {uid} at rest: has no probe result of its own: {who}"


def strange_results(node_pod_probe: Json) -> Iterator[str]:
    for entry in (node_pod_probe.get("status") or {}).get("podProbeStatuses") or ():
        for state in entry["probeStates"]:
            if state["state"] == "Succeeded" and state.get("message") != entry["uid"]:
                yield f"{entry['name']} {entry['uid']} has the probe result of Pod {state.get('message')}"


def job_at_rest(job: Json) -> Iterator[str]:
    """A job has ended with the expected result on all nodes."""
    what, spec, status = f"{KIND} {invariants.name(job)} at rest:", job["spec"], job.get("status") or {}
    wanted = "failed" if ".invalid" in spec["image"] else "succeeded"
    if job["metadata"].get("deletionTimestamp"):
        yield f"{what} is being deleted"
    elif not status.get("completionTime"):
        yield f"{what} has not ended: {status}"
    elif spec["completionPolicy"].get("ttlSecondsAfterFinished") is not None:
        yield f"{what} has ended and was not deleted"
    elif status.get(wanted, 0) != status["desired"]:
        yield f"{what} has not {wanted} on all nodes: {status}"


def node_image_at_rest(node_image: Json) -> Iterator[str]:
    """Every pull has ended and is counted."""
    what, tags, status = (
        f"NodeImage {invariants.name(node_image)} at rest:",
        tags_of(node_image),
        node_image.get("status") or {},
    )
    for key, tag in tags.items():
        if not is_done(tag, status_of(node_image, key)):
            yield f"{what} {':'.join(key)} has not ended: {status_of(node_image, key)}"
    counted = [status.get(name) or 0 for name in ("desired", "succeeded", "failed", "pulling", "waiting")]
    if counted[0] != len(tags) or sum(counted[1:3]) != len(tags) or any(counted[3:]):
        yield f"{what} has {len(tags)} tags but counts {counted}"


def condition(pod: Json) -> Json:
    found = (pod.get("status") or {}).get("conditions") or ()
    return next((one for one in found if one["type"] == CONDITION), {})


def tags_of(node_image: Json) -> dict[Key, Json]:
    images = (node_image.get("spec") or {}).get("images") or {}
    return {(image, tag["tag"]): tag for image, entry in images.items() for tag in entry.get("tags") or ()}


def status_of(node_image: Json, key: Key) -> Json:
    entry = ((node_image.get("status") or {}).get("imageStatuses") or {}).get(key[0]) or {}
    return next((one for one in entry.get("tags") or () if one["tag"] == key[1]), {})


def owners_of(tag: Json) -> set[str]:
    return {one["uid"] for one in tag.get("ownerReferences") or ()}


def is_done(tag: Json, status: Json) -> bool:
    """Return whether the status reports the end of the current pull."""
    return status.get("phase") in _ENDED and status.get("version", 0) == tag.get("version", 0)


def is_active(node_image: Json, key: Key, uid: str) -> bool:
    """Return whether the node pulls or must pull for the job."""
    tag = tags_of(node_image).get(key)
    return tag is not None and uid in owners_of(tag) and not is_done(tag, status_of(node_image, key))


# ---- actions of users


def pull_job(rng: Random, _name: str = "") -> Json:
    return {
        "image": f"{rng.choice(('', '', '', 'nowhere.invalid/'))}image-{rng.randrange(6)}:{rng.randrange(2)}",
        "parallelism": rng.choice((1, 1, 2)),
        "pullPolicy": {"backoffLimit": rng.choice((0, 1)), "timeoutSeconds": 60},
        "completionPolicy": given(type="Always", ttlSecondsAfterFinished=rng.choice((None, None, 10))),
        "imagePullPolicy": "IfNotPresent" if rng.random() < 0.5 else "Always",
    }


def _request(rng: Random) -> tuple[str, Json]:
    strategy: Json = {"forceRecreate": rng.random() < 0.5, "orderedRecreate": rng.random() < 0.3}
    strategy["minStartedSeconds"] = rng.choice((0, 0, 4))
    if rng.random() < 0.3:
        strategy["unreadyGracePeriodSeconds"] = rng.choice((0, 3))
    spec: Json = {
        "podName": rng.choice(PODS),
        "containers": [{"name": one} for one in rng.sample(CONTAINERS, rng.randint(1, 2))],
        "strategy": strategy,
    }
    if rng.random() < 0.2:
        spec["activeDeadlineSeconds"] = 20
    if rng.random() < 0.3:
        spec["ttlSecondsAfterFinished"] = 5
    again = rng.random() < 0.25
    name = f"again-{rng.randrange(3)}" if again else f"request-{rng.randrange(1_000_000)}"
    then = rng.choice(("", "kill agent", "kill agent", "kill agent", "stop runtime", "replace pod", "replace pod"))
    seconds = round(rng.choice((0.1, 1.0, 4.0)) * rng.random(), 2)
    return "restart containers", {"name": name, "spec": spec, "again": again, "then": then, "seconds": seconds}


def _others(rng: Random, _: str) -> tuple[str, Json]:
    draw = rng.random()
    if draw < 0.4:
        return _request(rng)
    if draw < 0.45:
        return "create workload", {"name": f"pull-{rng.randrange(1_000_000)}", "spec": pull_job(rng)}
    if draw < 0.5:
        return "kill agents", {}
    if draw < 0.75:
        return "replace pod", {"name": rng.choice(PODS), "node": rng.choice(NODES[:2]), "seconds": rng.randrange(2)}
    if draw < 0.83:
        return "crash container", {"pod_name": rng.choice(PODS), "container": rng.choice(CONTAINERS)}
    if draw < 0.93:
        return "kill agent", {"node": rng.choice(NODES)}
    return "stop runtime", {"node": rng.choice(NODES), "seconds": rng.choice((0.5, 4.0, 15.0))}


def _incident_acts(rng: Random, number: int) -> Iterator[Action]:
    """Draw the actions of an incident. Controllers that miss NodeImage updates must rely on their own writes."""
    if rng.random() < 0.4:
        yield Action(0.0, "freeze watches", {"resource": "nodeimages", "seconds": 8.0})
    yield Action(0.0, "create workload", {"name": f"late-{number}", "spec": pull_job(rng)})
    for _ in range(rng.randrange(2, 6)):
        yield Action(round(rng.uniform(0.0, 6.0), 2), *_others(rng, ""))


NODE_AGENTS = Workload(
    folders=FOLDERS,
    kind=IMAGE_PULL_JOB,
    judge=NodeAgentJudge,
    spec=pull_job,
    changes=[(1, "/spec/parallelism", lambda rng: rng.randrange(1, 4))],
    gates=("ImagePullJobGate",),
    marks=False,
    first=[
        Action(0.0, "create marker", {}),
        *(
            Action(0.0, "replace pod", {"name": name, "node": NODES[number % 2], "seconds": 0})
            for number, name in enumerate(PODS)
        ),
    ],
    others=_others,
    acts=_incident_acts,
    actor=NodeAgents,
    shares=Shares(change=0.1, pods=0.75, others=1.0),
    few=4,
    goes_on=True,  # agents repeat unchanged probe results from time to time
    watched=("pods", "nodeimages", "nodepodprobes", "containerrecreaterequests", "podprobemarkers"),
)
