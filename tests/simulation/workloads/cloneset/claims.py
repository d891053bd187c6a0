"""Invariants of the volume claims of CloneSets.

The controller deletes a claim only together with its Pod, or if the Pod is gone and claims are not reused. Claims of a
deleted owner are garbage-collected by the API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.api import names
from tests.simulation import invariants, passes
from tests.simulation.passes import Pass
from tests.simulation.pods import has_ended
from tests.simulation.volumes import claims_of
from tests.simulation.workloads.cloneset.promises import Promises, Spec
from tests.simulation.workloads.judge import Write

Json = dict[str, Any]

#: Stands for a deleted claim.
_GONE: Json = {"metadata": {"deletionTimestamp": "long ago"}}


class ClaimPromises:
    """Judges each write of a claim, and the claims of each new Pod."""

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self._claims: dict[str, Json] = {}
        #: By CloneSet and instance id: the Pod (uid) that the controller deleted, and the term that did it.
        self._scaled_in: dict[tuple[str, str], tuple[str, object]] = {}

    def claim_written(self, write: Write) -> Iterator[str]:
        """Return the violations of a write of a claim."""
        name, before, after, known = write.name, write.before, write.after, write.known
        write.kept_in(self._claims, name)
        if known is None or before is None or _is_going(before) or (after is not None and not _is_going(after)):
            return
        spec = self._promises.known_to(known)
        if spec is None:
            return
        uid, instance = known.uid, _instance(before)
        pods = self._promises.pods_of(uid)
        living = [pod for pod in pods if _instance(pod) == instance and not _is_going(pod) and not has_ended(pod)]
        if living:
            yield f"claim {name} was deleted while Pod {invariants.name(living[0])} uses it"
        elif spec.reuse and (uid, instance) not in self._scaled_in and not _chosen(instance, known):
            yield f"claim {name} was deleted although its Pod was not scaled in and will be recreated"

    def pod_written(self, write: Write) -> Iterator[str]:
        """Return the violations of a write of a Pod that concern its claims."""
        pod, before, after, known = write.obj, write.before, write.after, write.known
        if not claims_of(pod) or known is None:
            return
        instance = _instance(pod)
        if before is not None and not _is_going(before) and (after is None or _is_going(after)):
            self._scaled_in[(known.uid, instance)] = (before["metadata"]["uid"], known.term)
            return
        if before is not None or after is None:
            return
        name, spec = invariants.name(pod), self._promises.known_to(known)
        if spec is None:
            return  # the API server garbage-collects the Pod at once
        for claim_name in claims_of(pod):
            claim = self._claims.get(claim_name)
            if claim is None or _is_going(claim):
                yield f"Pod {name} was created without its claim {claim_name}"
        if spec.reuse:
            yield from self._passed_over(pod, known)
            yield from self._not_waited_for(pod, known, spec)
        self._scaled_in.pop((known.uid, instance), None)

    def _passed_over(self, pod: Json, known: Pass) -> Iterator[str]:
        """No Pod gets new claims while free ones exist. [CS-117]"""
        if any(_instance_of(claim) == _instance(pod) for claim in known.claims):
            return
        taken = _wanted(known).union(_instance_of(one) for one in known.pods)
        for claim in known.claims:
            live = self._claims.get(claim.metadata.name)
            free = live is not None and not _is_going(live) and claim.metadata.deletion_timestamp is None
            if free and _instance_of(claim) not in taken:
                yield f"Pod {invariants.name(pod)} gets new claims although {claim.metadata.name} is free"
                return

    def _not_waited_for(self, pod: Json, known: Pass, spec: Spec) -> Iterator[str]:
        """No Pod gets new claims while a terminating Pod is about to free its own. [CS-119]"""
        offered = {
            _instance_of(claim)
            for claim in known.claims
            if not _is_going(self._claims.get(claim.metadata.name) or _GONE)
        }
        if _instance(pod) in offered:
            return
        active = {_instance_of(one) for one in known.pods if _serves(one)}
        going = {_instance_of(one) for one in known.pods if one.metadata.deletion_timestamp is not None}
        awaited = {
            id_ for id_ in (going & offered) - active - _wanted(known) if (known.uid, id_) not in self._scaled_in
        }
        if spec.most - len(active) - len(known.wanted) < len(awaited):
            yield f"Pod {invariants.name(pod)} gets new claims although those of {min(awaited)} will become free"

    def at_rest(self, uid: str, spec: Spec) -> Iterator[str]:
        """Every Pod has its claims; claims without a Pod exist only if they may be reused.

        A controller that was killed between two requests may leave claims behind.
        """
        pods = {_instance(pod): pod for pod in self._promises.pods_of(uid)}
        mine = [claim for claim in self._claims.values() if invariants.owner_of(claim) == uid]
        for pod in pods.values():
            for name in claims_of(pod):
                if name not in self._claims or _is_going(self._claims[name]):
                    yield f"Pod {invariants.name(pod)} at rest: its claim {name} does not exist"
        for claim in mine:
            instance, name = _instance(claim), invariants.name(claim)
            if instance in pods:
                continue
            _, term = self._scaled_in.get((uid, instance), ("", None))
            if not spec.reuse or (term is not None and passes.works(term)):
                yield f"claim {name} at rest: its Pod was scaled in, or claims are not reused"


def _wanted(known: Pass) -> set[str]:
    """Return the instance ids of the Pods that the reconcile is creating."""
    return {name.rpartition("-")[2] for name in known.wanted}


def _serves(pod: Any) -> bool:
    """Return whether the controller counts a Pod as active."""
    labels, phase = pod.metadata.labels, pod.status.phase
    leaves = pod.metadata.deletion_timestamp is not None or labels.get(names.LIFECYCLE_STATE) == "PreparingDelete"
    return not leaves and phase not in ("Succeeded", "Failed")


def _chosen(instance: str, known: Pass) -> bool:
    """Return whether the reconcile may have scaled in a Pod that another actor deleted at the same time."""
    return any(_instance_of(pod) == instance and pod.metadata.deletion_timestamp is None for pod in known.pods)


def _is_going(obj: Json) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def _instance(obj: Json) -> str:
    return str((obj["metadata"].get("labels") or {}).get(names.CLONESET_INSTANCE_ID, ""))


def _instance_of(obj: Any) -> str:
    return str(obj.metadata.labels.get(names.CLONESET_INSTANCE_ID, ""))
