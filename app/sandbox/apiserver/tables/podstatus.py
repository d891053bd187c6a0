"""The words of `kubectl get pods`: READY, STATUS and RESTARTS of a Pod, by Kubernetes' own rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Object: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class PodSummary:
    """What is counted while going through a Pod's containers. ``last_restart``: RFC 3339, "" for never."""

    reason: str
    total: int
    ready: int = 0
    restarts: int = 0
    last_restart: str = ""
    initializing: bool = False

    def count(self, status: Object) -> None:
        """Add a container's restarts."""
        self.restarts += status.get("restartCount", 0)
        ended = (status.get("lastState") or {}).get("terminated") or {}
        self.last_restart = max(self.last_restart, ended.get("finishedAt") or "")


def summarise(pod: Object) -> PodSummary:
    """READY, STATUS and RESTARTS of a Pod."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    conditions = status.get("conditions") or []
    sidecars = {one["name"] for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"}
    summary = PodSummary(
        reason=status.get("reason") or status.get("phase", ""),
        total=len(spec.get("containers") or ()) + len(sidecars),
    )
    if any(one["type"] == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in conditions):
        summary.reason = "SchedulingGated"
    of_sidecars = PodSummary("", 0)
    _add_init_containers(summary, of_sidecars, spec, status, sidecars)
    if not summary.initializing or _is_true(conditions, "Initialized"):
        summary.restarts, summary.last_restart = of_sidecars.restarts, of_sidecars.last_restart
        _add_containers(summary, status, conditions)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            summary.reason = "Terminating"
    return summary


def _add_init_containers(
    summary: PodSummary, of_sidecars: PodSummary, spec: Object, status: Object, sidecars: set[str]
) -> None:
    """Up to the first init container that is not done."""
    for index, one in enumerate(status.get("initContainerStatuses") or ()):
        summary.count(one)
        sidecar = one.get("name") in sidecars
        if sidecar:
            of_sidecars.count(one)
        state = one.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if sidecar and one.get("started"):
            summary.ready += bool(one.get("ready"))
            continue
        if ended is not None:
            summary.reason = f"Init:{_ended(ended)}"
        elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
            summary.reason = f"Init:{waiting['reason']}"
        else:
            summary.reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        summary.initializing = True
        return


def _add_containers(summary: PodSummary, status: Object, conditions: Iterable[Object]) -> None:
    running = False
    for one in reversed(status.get("containerStatuses") or ()):
        summary.count(one)
        state = one.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            summary.reason = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            summary.reason = _ended(state["terminated"])
        elif one.get("ready") and state.get("running") is not None:
            running = True
            summary.ready += 1
    # A container that ended well does not make a Pod completed while another one runs.
    if summary.reason == "Completed" and running:
        summary.reason = "Running" if _is_true(conditions, "Ready") else "NotReady"


def _ended(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_true(conditions: Iterable[Object], kind: str) -> bool:
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)
