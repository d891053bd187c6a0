"""BroadcastJobs: actions of users, and invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from random import Random
from typing import Any

from app.features.broadcastjob.kind import BROADCAST_JOB
from tests.simulation import invariants
from tests.simulation.pods import has_ended, is_alive
from tests.simulation.workloads.daemonset import NODES, node_of
from tests.simulation.workloads.judge import Judge, Write
from tests.simulation.workloads.subject import Workload, given, template

Json = dict[str, Any]

FOLDERS = ("app.features.podreadiness", "app.features.broadcastjob")
KIND = BROADCAST_JOB.kind
#: The default parallelism.
_ALL = 2**31 - 1


class BroadcastJobJudge(Judge):
    """Each node runs one Pod, at most ``parallelism`` Pods run at a time, and a job ends when it must, not before."""

    def __init__(self) -> None:
        self.judged = {KIND: self._job, "Pod": self._pod}
        self._jobs: dict[str, Json] = {}
        #: By uid: the largest parallelism that the job has had.
        self._most: dict[str, int] = {}
        self._pods: dict[str, dict[str, Json]] = {}
        #: By uid: nodes whose Pod has ended or is being deleted.
        self._served: dict[str, set[str]] = {}

    def _job(self, write: Write) -> Iterator[str]:
        write.kept_in(self._jobs)
        uid, before, after = write.uid, write.before, write.after
        if after is None:
            return
        self._most[uid] = max(self._most.get(uid, 0), after["spec"].get("parallelism", _ALL))
        if condition(after, "Complete") and (before is None or not condition(before, "Complete")):
            served = self._served.get(uid, set())
            if len(served) < NODES:
                name = invariants.name(after)
                yield f"BroadcastJob {name} is complete after {len(served)} of {NODES} nodes"

    def _pod(self, write: Write) -> Iterator[str]:
        pod, after, uid = write.obj, write.after, invariants.owner_of(write.obj)
        if all(one["kind"] != KIND for one in pod["metadata"].get("ownerReferences") or ()):
            return
        pods, node = self._pods.setdefault(uid, {}), node_of(pod)
        if after is None or has_ended(after) or after["metadata"].get("deletionTimestamp"):
            self._served.setdefault(uid, set()).add(node)
        write.kept_in(pods)
        job = self._jobs.get(uid)
        if write.before is not None or after is None or job is None:
            return
        name = invariants.name(after)
        if sum(node_of(one) == node for one in pods.values()) > 1:
            yield f"Pod {name} is the second on {node}"
        active = sum(is_alive(one) for one in pods.values())
        if active > self._most[uid]:
            yield f"Pod {name} is one too many: {active} are active, {self._most[uid]} allowed"
        if ended(job):
            yield f"Pod {name} was created after its job ended"

    def at_rest(self, now: datetime) -> Iterable[str]:
        """Every job that can end has ended, the others have a Pod wherever one fits, and the counts are correct."""
        for uid, job in self._jobs.items():
            yield from self._job_at_rest(job, [*self._pods.get(uid, {}).values()])

    def _job_at_rest(self, job: Json, pods: list[Json]) -> Iterator[str]:
        what, spec, status = f"BroadcastJob {invariants.name(job)} at rest:", job["spec"], job.get("status") or {}
        policy, active = spec.get("completionPolicy") or {}, [pod for pod in pods if is_alive(pod)]
        if job["metadata"].get("deletionTimestamp"):
            yield f"{what} is being deleted"
        if going := [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]:
            yield f"{what} {len(going)} Pods are being deleted"
        if active and not (spec.get("paused") and policy.get("activeDeadlineSeconds") is not None):
            yield f"{what} {len(active)} Pods run, although their command or the deadline must have ended them"
        if ended(job):
            if policy.get("ttlSecondsAfterFinished") is not None:
                yield f"{what} has ended and was not deleted"
            if condition(job, "Failed") and active:
                yield f"{what} has failed, but {len(active)} of its Pods run"
            return
        failed = sum((pod.get("status") or {}).get("phase") == "Failed" for pod in pods)
        true = {
            "active": len(active),
            "failed": failed,
            "succeeded": sum((pod.get("status") or {}).get("phase") == "Succeeded" for pod in pods),
            "desired": NODES,
        }
        yield from invariants.status_is(f"BroadcastJob {invariants.name(job)}", status, true)
        if status.get("phase") == "failed":
            return
        if spec.get("paused"):
            if status.get("phase") != "paused":
                yield f"{what} is paused, but its phase is {status.get('phase')}"
            return
        never, nodes = policy.get("type") == "Never", Counter(map(node_of, pods))
        if not never and policy.get("activeDeadlineSeconds") is not None:
            yield f"{what} runs past its deadline"
        if failed and (spec.get("failurePolicy") or {}).get("type") == "FailFast":
            yield f"{what} continues with {failed} failed Pods"
        if len(nodes) < NODES and len(active) < spec.get("parallelism", _ALL):
            yield f"{what} {NODES - len(nodes)} nodes wait while {len(active)} Pods run"
        if not never and len(nodes) == NODES and not active:
            yield f"{what} has not ended although every node was served"


def condition(job: Json, type_: str) -> bool:
    found = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] == type_ and one["status"] == "True" for one in found)


def ended(job: Json) -> bool:
    never = (job["spec"].get("completionPolicy") or {}).get("type") == "Never"
    return not never and (condition(job, "Complete") or condition(job, "Failed"))


# ---- actions of users


def spec(rng: Random, name: str) -> Json:
    policy = rng.choice(("Always", "Always", "Always", "Never"))
    deadline = rng.choice((None, None, 20)) if policy == "Always" else None
    parallelism = rng.choice((1, 1, 2, None))
    seconds = rng.choice((1, 4, 15, 40) if deadline is None else (1, 4, 3600))
    code = rng.choice((0, 0, 0, 1))
    ttl = rng.choice((None, 0, 10)) if policy == "Always" else None
    return {
        **given(parallelism=parallelism),
        "completionPolicy": given(type=policy, activeDeadlineSeconds=deadline, ttlSecondsAfterFinished=ttl),
        "failurePolicy": {"type": rng.choice(("FailFast", "Continue", "Pause"))},
        "template": task(name, f"sleep {seconds}; exit {code}"),
    }


def task(name: str, command: str, **more: Any) -> Json:
    """Return the template of Pods that run a command once."""
    container = {"name": "main", "image": "task:1", "command": ["sh", "-c", command]}
    return template(name, "", restartPolicy="Never", **more, containers=[container])


def _unanswered(rng: Random, name: str) -> tuple[str, Json]:
    return "blind creation", {"name": name, "seconds": round(rng.uniform(0.5, 3.0), 1)}


BROADCAST_JOBS = Workload(
    folders=FOLDERS,
    kind=BROADCAST_JOB,
    judge=BroadcastJobJudge,
    spec=spec,
    changes=[
        (1, "/spec/parallelism", lambda rng: rng.randrange(1, 4)),
        (2, "/spec/paused", lambda rng: rng.random() < 0.3),
    ],
    marks=False,
    others=_unanswered,
    few=4,
    watched=("pods", "nodes"),
)
