"""EphemeralJobs: what users ask for, and what must hold of what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from random import Random
from typing import Any

from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from tests.simulation import invariants
from tests.simulation.script import APPS, Action
from tests.simulation.workloads.broadcastjob import is_active
from tests.simulation.workloads.judge import JudgeByKind
from tests.simulation.workloads.subject import Workload

Json = dict[str, Any]

FOLDERS = ("app.features.podreadiness", "app.features.ephemeraljob")
KIND = EPHEMERAL_JOB.kind
_MARK = "KRUISE_EJOB_ID"
_CONTAINER = "debug"
#: Pods that are there from the beginning.
_PODS = 6


class EphemeralJobJudge(JudgeByKind):
    """Never more Pods at once than parallelism, nor more in all than replicas; every job that can end ends."""

    def __init__(self) -> None:
        self.judged = {KIND: self._job, "Pod": self._pod}
        self._jobs: dict[str, Json] = {}
        #: By uid: the largest parallelism and the most replicas (None: all) that users ever asked for.
        self._most: dict[str, int] = {}
        self._replicas: dict[str, float] = {}
        self._pods: dict[str, Json] = {}
        #: By uid of a job: the uids of all Pods that ever got its container, those that are gone included (EJ-17).
        self._touched: dict[str, set[str]] = {}

    def _job(self, obj: Json, _before: Json | None, after: Json | None) -> Iterator[str]:
        uid = obj["metadata"]["uid"]
        if after is None:
            self._jobs.pop(uid, None)
            return
        self._jobs[uid] = after
        spec = after["spec"]
        self._most[uid] = max(self._most.get(uid, 0), spec.get("parallelism", 1))
        self._replicas[uid] = max(self._replicas.get(uid, 0), spec.get("replicas", float("inf")))
        yield from ()

    def _pod(self, pod: Json, before: Json | None, after: Json | None) -> Iterator[str]:
        uid = pod["metadata"]["uid"]
        if after is None:
            self._pods.pop(uid, None)
            return
        self._pods[uid] = after
        for job in marks(after) - (marks(before) if before is not None else set()):
            yield from self._served(job, after)

    def _served(self, uid: str, pod: Json) -> Iterator[str]:
        job, name = self._jobs.get(uid), invariants.name(pod)
        if job is None:
            return
        mine = [one for one in self._pods.values() if uid in marks(one)]
        busy = sum(is_busy(one) for one in mine)
        if busy > self._most[uid]:
            yield f"Pod {name} is one too many: {busy} are worked on, {self._most[uid]} may be"
        touched = self._touched.setdefault(uid, set())
        touched.add(pod["metadata"]["uid"])
        if len(touched) > self._replicas[uid]:
            yield f"Pod {name} is one too many: {len(touched)} got the container, {self._replicas[uid]} may"
        if (job.get("status") or {}).get("completionTime"):
            yield f"Pod {name} got a container of a job that had ended"

    def at_rest(self, now: datetime) -> Iterable[str]:
        """Whoever means a Pod has ended, and is gone when its time is over."""
        for uid, job in self._jobs.items():
            what, spec, status = f"EphemeralJob {invariants.name(job)} at rest:", job["spec"], job.get("status") or {}
            if job["metadata"].get("deletionTimestamp"):
                yield f"{what} is being deleted"
            elif status.get("completionTime"):
                yield f"{what} has ended, and is there still"
            elif spec.get("paused"):
                if status.get("phase") != "Paused":
                    yield f"{what} its phase is {status.get('phase')}, and it is paused"
            elif spec.get("activeDeadlineSeconds") is not None:
                yield f"{what} goes on after its deadline"
            else:
                app = spec["selector"]["matchLabels"]["app"]
                meant = [pod for pod in self._pods.values() if (pod["metadata"].get("labels") or {}).get("app") == app]
                mine = [pod for pod in meant if uid in marks(pod)]
                mark = f"{_CONTAINER}-{job['metadata']['name']}"
                free = [pod for pod in meant if is_active(pod) and not has_container(pod, mark)]
                if mine or free:
                    yield f"{what} goes on: {len(mine)} Pods have the container, {len(free)} might"
                elif status.get("phase") != "Waiting" or status.get("match"):
                    yield f"{what} its phase is {status.get('phase')} ({status.get('match')}), and no Pod matches"


def marks(pod: Json) -> set[str]:
    """The uids of the jobs that a Pod has containers of."""
    return {
        str(env.get("value"))
        for container in pod["spec"].get("ephemeralContainers") or ()
        for env in container.get("env") or ()
        if env["name"] == _MARK
    }


def has_container(pod: Json, name: str) -> bool:
    """Return whether an ephemeral container of that name was put into it, by whomever."""
    return any(one["name"] == name for one in pod["spec"].get("ephemeralContainers") or ())


def is_busy(pod: Json) -> bool:
    """Return whether a container that was put into it has not ended."""
    statuses = (pod.get("status") or {}).get("ephemeralContainerStatuses") or ()
    return is_active(pod) and not any("terminated" in (one.get("state") or {}) for one in statuses)


# ---- what users ask for


def spec_by_seed(rng: Random) -> Json:
    """Create one, as a user would."""
    return {
        "app": rng.choice(APPS),
        "parallelism": rng.choice((1, 1, 2, 3)),
        "replicas": rng.choice((None, None, 2)),
        "seconds": rng.choice((1, 4, 15)),
        "code": rng.choice((0, 0, 0, 1)),
        "deadline": rng.choice((None, None, None, 20)),
        "ttl": rng.choice((0, 10)),
    }


def ephemeral_job(
    name: str,
    namespace: str,
    *,
    app: str,
    parallelism: int,
    replicas: int | None,
    seconds: int,
    code: int,
    deadline: int | None,
    ttl: int,
) -> Json:
    """The object a user applies."""
    container = {
        "name": f"{_CONTAINER}-{name}",
        "image": "tools:1",
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "File",
        "command": ["sh", "-c", f"sleep {seconds}; exit {code}"],
    }
    return {
        "apiVersion": EPHEMERAL_JOB.resource().api_version,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            "parallelism": parallelism,
            **({"replicas": replicas} if replicas is not None else {}),
            **({"activeDeadlineSeconds": deadline} if deadline is not None else {}),
            "ttlSecondsAfterFinished": ttl,
            "template": {"ephemeralContainers": [container]},
        },
    }


def _parallelism(rng: Random) -> tuple[str, Any]:
    return "/spec/parallelism", rng.randrange(1, 4)


def _paused(rng: Random) -> tuple[str, Any]:
    return "/spec/paused", rng.random() < 0.3


def _pods(rng: Random, _: str) -> tuple[str, Json]:
    name = f"pod-{rng.randrange(_PODS + 2)}"
    what = rng.choice(("create pod", "create pod", "delete pod", "relabel pod"))
    more: Json = {"create pod": {"app": rng.choice(APPS), "ordered": False}, "delete pod": {}}.get(
        what, {"app": rng.choice(APPS)}
    )
    return what, {"name": name, **more}


EPHEMERAL_JOBS = Workload(
    FOLDERS,
    EPHEMERAL_JOB.resource(),
    EphemeralJobJudge,
    spec_by_seed,
    ephemeral_job,
    {"parallelism": (1, _parallelism), "pause": (2, _paused)},
    marks=False,
    first=[
        Action(0.0, "create pod", {"name": f"pod-{number}", "app": APPS[number % 3 == 2], "ordered": False})
        for number in range(_PODS)
    ],
    others=_pods,
    few=4,
    watched=("pods",),
)
