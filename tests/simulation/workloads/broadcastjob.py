"""BroadcastJobs: actions of users, and invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from random import Random
from typing import Any

from app.features.broadcastjob.kind import BROADCAST_JOB
from tests.simulation import invariants
from tests.simulation.pods import has_ended
from tests.simulation.users import LABEL
from tests.simulation.workloads.daemonset import NODES, node_of
from tests.simulation.workloads.judge import JudgeByKind
from tests.simulation.workloads.subject import Workload

Json = dict[str, Any]

FOLDERS = ("app.features.podreadiness", "app.features.broadcastjob")
KIND = BROADCAST_JOB.kind
#: What a parallelism that is not said means.
_ALL = 2**31 - 1


class BroadcastJobJudge(JudgeByKind):
    """Each node is served once, never more than parallelism at a time; a job ends when it should, and not before."""

    def __init__(self) -> None:
        self.judged = {KIND: self._job, "Pod": self._pod}
        self._jobs: dict[str, Json] = {}
        #: By uid: the largest parallelism that users ever asked for.
        self._most: dict[str, int] = {}
        self._pods: dict[str, dict[str, Json]] = {}
        #: By uid: nodes whose Pod has ended, or was told to go.
        self._served: dict[str, set[str]] = {}

    def _job(self, obj: Json, before: Json | None, after: Json | None) -> Iterator[str]:
        uid = obj["metadata"]["uid"]
        if after is None:
            self._jobs.pop(uid, None)
            return
        self._jobs[uid] = after
        self._most[uid] = max(self._most.get(uid, 0), after["spec"].get("parallelism", _ALL))
        if condition(after, "Complete") and (before is None or not condition(before, "Complete")):
            served = self._served.get(uid, set())
            if len(served) < NODES:
                name = invariants.name(after)
                yield f"BroadcastJob {name} is complete: {len(served)} nodes were served, there are {NODES}"

    def _pod(self, pod: Json, before: Json | None, after: Json | None) -> Iterator[str]:
        uid = invariants.owner_of(pod)
        if all(one["kind"] != KIND for one in pod["metadata"].get("ownerReferences") or ()):
            return
        pods, node = self._pods.setdefault(uid, {}), node_of(pod)
        if after is None or has_ended(after) or after["metadata"].get("deletionTimestamp"):
            self._served.setdefault(uid, set()).add(node)
        if after is None:
            pods.pop(pod["metadata"]["uid"], None)
            return
        pods[after["metadata"]["uid"]] = after
        job = self._jobs.get(uid)
        if before is not None or job is None:
            return
        name = invariants.name(after)
        if sum(node_of(one) == node for one in pods.values()) > 1:
            yield f"Pod {name} serves {node}, which has one already"
        active = sum(is_active(one) for one in pods.values())
        if active > self._most[uid]:
            yield f"Pod {name} is one too many: {active} are active, {self._most[uid]} may be"
        if ended(job):
            yield f"Pod {name} came after its job had ended"

    def at_rest(self, now: datetime) -> Iterable[str]:
        """Whoever can end has ended, all others have a Pod wherever there is room, and the counts are true."""
        for uid, job in self._jobs.items():
            yield from self._job_at_rest(job, [*self._pods.get(uid, {}).values()])

    def _job_at_rest(self, job: Json, pods: list[Json]) -> Iterator[str]:
        what, spec, status = f"BroadcastJob {invariants.name(job)} at rest:", job["spec"], job.get("status") or {}
        policy, active = spec.get("completionPolicy") or {}, [pod for pod in pods if is_active(pod)]
        if job["metadata"].get("deletionTimestamp"):
            yield f"{what} is being deleted"
        if going := [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]:
            yield f"{what} {len(going)} Pods are being deleted"
        if active and not (spec.get("paused") and policy.get("activeDeadlineSeconds") is not None):
            yield f"{what} {len(active)} Pods run, which end by themselves or by the deadline"
        if ended(job):
            if policy.get("ttlSecondsAfterFinished") is not None:
                yield f"{what} has ended, and is there still"
            if condition(job, "Failed") and active:
                yield f"{what} has failed, and {len(active)} of its Pods run"
            return
        failed = sum((pod.get("status") or {}).get("phase") == "Failed" for pod in pods)
        wanted = {
            "active": len(active),
            "failed": failed,
            "succeeded": sum((pod.get("status") or {}).get("phase") == "Succeeded" for pod in pods),
            "desired": NODES,
        }
        for field, value in wanted.items():
            if (status.get(field) or 0) != value:
                yield f"{what} status.{field} is {status.get(field)}, asked for is {value}"
        if status.get("phase") == "failed":
            return
        if spec.get("paused"):
            if status.get("phase") != "paused":
                yield f"{what} its phase is {status.get('phase')}, and it is paused"
            return
        never, nodes = policy.get("type") == "Never", Counter(map(node_of, pods))
        if not never and policy.get("activeDeadlineSeconds") is not None:
            yield f"{what} goes on after its deadline"
        if failed and (spec.get("failurePolicy") or {}).get("type") == "FailFast":
            yield f"{what} goes on with {failed} failed Pods"
        if len(nodes) < NODES and len(active) < spec.get("parallelism", _ALL):
            yield f"{what} {NODES - len(nodes)} nodes wait, and {len(active)} Pods run"
        if not never and len(nodes) == NODES and not active:
            yield f"{what} goes on, and every node was served"


def condition(job: Json, type_: str) -> bool:
    found = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] == type_ and one["status"] == "True" for one in found)


def ended(job: Json) -> bool:
    never = (job["spec"].get("completionPolicy") or {}).get("type") == "Never"
    return not never and (condition(job, "Complete") or condition(job, "Failed"))


def is_active(pod: Json) -> bool:
    """Neither ended nor going."""
    return not has_ended(pod) and not pod["metadata"].get("deletionTimestamp")


# ---- what users ask for


def spec_by_seed(rng: Random) -> Json:
    """Create one, as a user would."""
    policy = rng.choice(("Always", "Always", "Always", "Never"))
    deadline = rng.choice((None, None, 20)) if policy == "Always" else None
    return {
        "parallelism": rng.choice((1, 1, 2, None)),
        "seconds": rng.choice((1, 4, 15, 40) if deadline is None else (1, 4, 3600)),
        "code": rng.choice((0, 0, 0, 1)),
        "policy": policy,
        "deadline": deadline,
        "ttl": rng.choice((None, 0, 10)) if policy == "Always" else None,
        "failure": rng.choice(("FailFast", "Continue", "Pause")),
    }


def broadcast_job(
    name: str,
    namespace: str,
    *,
    parallelism: int | None,
    seconds: int,
    code: int,
    policy: str,
    deadline: int | None,
    ttl: int | None,
    failure: str,
) -> Json:
    """The object a user applies."""
    return {
        "apiVersion": BROADCAST_JOB.resource().api_version,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            **({"parallelism": parallelism} if parallelism is not None else {}),
            "completionPolicy": {
                "type": policy,
                **({"activeDeadlineSeconds": deadline} if deadline is not None else {}),
                **({"ttlSecondsAfterFinished": ttl} if ttl is not None else {}),
            },
            "failurePolicy": {"type": failure},
            "template": {
                "metadata": {"labels": {LABEL: name}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "containers": [
                        {
                            "name": "main",
                            "image": "task:1",
                            "command": ["sh", "-c", f"sleep {seconds}; exit {code}"],
                        }
                    ],
                },
            },
        },
    }


def _parallelism(rng: Random) -> tuple[str, Any]:
    return "/spec/parallelism", rng.randrange(1, 4)


def _paused(rng: Random) -> tuple[str, Any]:
    return "/spec/paused", rng.random() < 0.3


def _unanswered(rng: Random, name: str) -> tuple[str, Json]:
    return "blind creation", {"name": name, "seconds": round(rng.uniform(0.5, 3.0), 1)}


BROADCAST_JOBS = Workload(
    FOLDERS,
    BROADCAST_JOB.resource(),
    BroadcastJobJudge,
    spec_by_seed,
    broadcast_job,
    {"parallelism": (1, _parallelism), "pause": (2, _paused)},
    marks=False,
    others=_unanswered,
    few=4,
    watched=("pods", "nodes"),
)
