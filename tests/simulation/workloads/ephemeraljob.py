"""EphemeralJobs: actions of users, and invariants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from random import Random
from typing import Any

from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from tests.simulation import invariants
from tests.simulation.pods import is_alive
from tests.simulation.script import APPS, Action
from tests.simulation.workloads.judge import Judge, Write
from tests.simulation.workloads.subject import Workload, given

Json = dict[str, Any]

FOLDERS = ("app.features.podreadiness", "app.features.ephemeraljob")
KIND = EPHEMERAL_JOB.kind
_MARK = "KRUISE_EJOB_ID"
_CONTAINER = "debug"
#: Pods that exist from the start.
_PODS = 6


class EphemeralJobJudge(Judge):
    """A job runs in at most ``parallelism`` Pods at once and ``replicas`` Pods in total, and ends if it can."""

    def __init__(self) -> None:
        self.judged = {KIND: self._job, "Pod": self._pod}
        self._jobs: dict[str, Json] = {}
        #: By uid: the largest parallelism and replicas that the job has had.
        self._most: dict[str, int] = {}
        self._replicas: dict[str, float] = {}
        self._pods: dict[str, Json] = {}
        #: By uid of a job: the uids of all Pods that ever got its container, deleted Pods included (EJ-17).
        self._touched: dict[str, set[str]] = {}

    def _job(self, write: Write) -> None:
        write.kept_in(self._jobs)
        if write.after is not None:
            uid, spec = write.uid, write.after["spec"]
            self._most[uid] = max(self._most.get(uid, 0), spec.get("parallelism", 1))
            self._replicas[uid] = max(self._replicas.get(uid, 0), spec.get("replicas", float("inf")))

    def _pod(self, write: Write) -> Iterator[str]:
        write.kept_in(self._pods)
        if write.after is not None:
            for job in marks(write.after) - (marks(write.before) if write.before is not None else set()):
                yield from self._served(job, write.after)

    def _served(self, uid: str, pod: Json) -> Iterator[str]:
        job, name = self._jobs.get(uid), invariants.name(pod)
        if job is None:
            return
        mine = [one for one in self._pods.values() if uid in marks(one)]
        busy = sum(is_busy(one) for one in mine)
        if busy > self._most[uid]:
            yield f"Pod {name} is one too many: {busy} run the container, {self._most[uid]} allowed"
        touched = self._touched.setdefault(uid, set())
        touched.add(pod["metadata"]["uid"])
        if len(touched) > self._replicas[uid]:
            yield f"Pod {name} is one too many: {len(touched)} got the container, {self._replicas[uid]} allowed"
        if (job.get("status") or {}).get("completionTime"):
            yield f"Pod {name} got a container of a job that has ended"

    def at_rest(self, now: datetime) -> Iterable[str]:
        """Every job that matches a Pod has ended, and is deleted after its TTL."""
        for uid, job in self._jobs.items():
            what, spec, status = f"EphemeralJob {invariants.name(job)} at rest:", job["spec"], job.get("status") or {}
            if job["metadata"].get("deletionTimestamp"):
                yield f"{what} is being deleted"
            elif status.get("completionTime"):
                yield f"{what} has ended and was not deleted"
            elif spec.get("paused"):
                if status.get("phase") != "Paused":
                    yield f"{what} is paused, but its phase is {status.get('phase')}"
            elif spec.get("activeDeadlineSeconds") is not None:
                yield f"{what} runs past its deadline"
            else:
                app = spec["selector"]["matchLabels"]["app"]
                meant = [pod for pod in self._pods.values() if (pod["metadata"].get("labels") or {}).get("app") == app]
                mine = [pod for pod in meant if uid in marks(pod)]
                mark = f"{_CONTAINER}-{job['metadata']['name']}"
                free = [pod for pod in meant if is_alive(pod) and not has_container(pod, mark)]
                if mine or free:
                    yield f"{what} has not ended: {len(mine)} Pods have the container, {len(free)} could get it"
                elif status.get("phase") != "Waiting" or status.get("match"):
                    yield f"{what} matches no Pod, but has {status.get('phase')}, {status.get('match')}"


def marks(pod: Json) -> set[str]:
    """Return the uids of the jobs whose containers a Pod has."""
    return {
        str(env.get("value"))
        for container in pod["spec"].get("ephemeralContainers") or ()
        for env in container.get("env") or ()
        if env["name"] == _MARK
    }


def has_container(pod: Json, name: str) -> bool:
    """Return whether the Pod has an ephemeral container of that name."""
    return any(one["name"] == name for one in pod["spec"].get("ephemeralContainers") or ())


def is_busy(pod: Json) -> bool:
    """Return whether none of a Pod's ephemeral containers has ended."""
    statuses = (pod.get("status") or {}).get("ephemeralContainerStatuses") or ()
    return is_alive(pod) and not any("terminated" in (one.get("state") or {}) for one in statuses)


# ---- actions of users


def spec(rng: Random, name: str) -> Json:
    found = {"selector": {"matchLabels": {"app": rng.choice(APPS)}}, "parallelism": rng.choice((1, 1, 2, 3))}
    found |= given(replicas=rng.choice((None, None, 2)))
    seconds, code = rng.choice((1, 4, 15)), rng.choice((0, 0, 0, 1))
    container = {
        "name": f"{_CONTAINER}-{name}",
        "image": "tools:1",
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "File",
        "command": ["sh", "-c", f"sleep {seconds}; exit {code}"],
    }
    return {
        **found,
        **given(activeDeadlineSeconds=rng.choice((None, None, None, 20))),
        "ttlSecondsAfterFinished": rng.choice((0, 10)),
        "template": {"ephemeralContainers": [container]},
    }


def _pods(rng: Random, _: str) -> tuple[str, Json]:
    name = f"pod-{rng.randrange(_PODS + 2)}"
    what = rng.choice(("create pod", "create pod", "delete pod", "relabel pod"))
    more: Json = {"create pod": {"app": rng.choice(APPS), "ordered": False}, "delete pod": {}}.get(
        what, {"app": rng.choice(APPS)}
    )
    return what, {"name": name, **more}


EPHEMERAL_JOBS = Workload(
    folders=FOLDERS,
    kind=EPHEMERAL_JOB,
    judge=EphemeralJobJudge,
    spec=spec,
    changes=[
        (1, "/spec/parallelism", lambda rng: rng.randrange(1, 4)),
        (2, "/spec/paused", lambda rng: rng.random() < 0.3),
    ],
    marks=False,
    first=[
        Action(0.0, "create pod", {"name": f"pod-{number}", "app": APPS[number % 3 == 2], "ordered": False})
        for number in range(_PODS)
    ],
    others=_pods,
    few=4,
    watched=("pods",),
)
