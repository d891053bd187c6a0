"""Volume claims of CloneSets: what must hold of them.

No claim is lost: one goes by the controller's doing only together with its Pod, which the controller deleted, or when
its Pod is no more and claims are not to be used again. What goes with its owner is the API server's doing.
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

Json = dict[str, Any]

#: What a claim is taken for that is no more.
_GONE: Json = {"metadata": {"deletionTimestamp": "long ago"}}


class ClaimPromises:
    """Checks each write of a claim, and the claims of each Pod that is created."""

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self._claims: dict[str, Json] = {}
        #: Pods that the controller deleted (uid), by CloneSet and instance id, and which of its terms did it.
        self._scaled_in: dict[tuple[str, str], tuple[str, object]] = {}

    def claim_written(self, before: Json | None, after: Json | None, known: Pass | None) -> Iterator[str]:
        """What a write of a claim breaks. ``known``: the pass that wrote."""
        claim = after if after is not None else before
        if claim is None:
            return
        name = claim["metadata"]["name"]
        if after is None:
            self._claims.pop(name, None)
        else:
            self._claims[name] = after
        if known is None or before is None or _is_going(before) or (after is not None and not _is_going(after)):
            return
        spec = self._promises.known_to(known)
        if spec is None:
            return
        uid, instance = known.uid, _instance(before)
        pods = self._promises.pods_of(uid)
        living = [pod for pod in pods if _instance(pod) == instance and not _is_going(pod) and not has_ended(pod)]
        if living:
            yield f"claim {name} is deleted while Pod {invariants.name(living[0])} lives"
        elif spec.reuse and (uid, instance) not in self._scaled_in and not _chosen(instance, known):
            yield f"claim {name} is deleted though its Pod is to come back: it was not scaled in"

    def pod_written(self, before: Json | None, after: Json | None, known: Pass | None) -> Iterator[str]:
        """What a write of a Pod breaks, as to its claims."""
        pod = after if after is not None else before
        if pod is None or not claims_of(pod) or known is None:
            return
        instance = _instance(pod)
        if before is not None and not _is_going(before) and (after is None or _is_going(after)):
            self._scaled_in[(known.uid, instance)] = (before["metadata"]["uid"], known.term)
            return
        if before is not None or after is None:
            return
        name, spec = invariants.name(pod), self._promises.known_to(known)
        if spec is None:
            return  # the API server collects it at once
        for claim_name in claims_of(pod):
            claim = self._claims.get(claim_name)
            if claim is None or _is_going(claim):
                yield f"Pod {name} is created without its claim {claim_name}"
        if spec.reuse:
            yield from self._passed_over(pod, known)
            yield from self._not_waited_for(pod, known, spec)
        self._scaled_in.pop((known.uid, instance), None)

    def _passed_over(self, pod: Json, known: Pass) -> Iterator[str]:
        """No Pod gets new claims while there are free ones. [CS-117]"""
        if any(_instance_of(claim) == _instance(pod) for claim in known.claims):
            return
        taken = _wanted(known).union(_instance_of(one) for one in known.pods)
        for claim in known.claims:
            live = self._claims.get(claim.metadata.name)
            free = live is not None and not _is_going(live) and claim.metadata.deletion_timestamp is None
            if free and _instance_of(claim) not in taken:
                yield f"Pod {invariants.name(pod)} gets new claims though {claim.metadata.name} is free"
                return

    def _not_waited_for(self, pod: Json, known: Pass, spec: Spec) -> Iterator[str]:
        """No Pod gets new claims while those of a terminating Pod will do, unless the controller deletes them too;
        each such Pod reserves one. [CS-119]"""
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
            yield f"Pod {invariants.name(pod)} gets new claims though those of a Pod that goes will do: {min(awaited)}"

    def at_rest(self, uid: str, spec: Spec) -> Iterator[str]:
        """Every Pod has its claims; those of Pods that are gone are there only where they may be used again.

        A controller that died between two requests may have left claims behind.
        """
        pods = {_instance(pod): pod for pod in self._promises.pods_of(uid)}
        mine = [claim for claim in self._claims.values() if invariants.owner_of(claim) == uid]
        for pod in pods.values():
            for name in claims_of(pod):
                if name not in self._claims or _is_going(self._claims[name]):
                    yield f"Pod {invariants.name(pod)} at rest: its claim {name} is not there"
        for claim in mine:
            instance, name = _instance(claim), invariants.name(claim)
            if instance in pods:
                continue
            _, term = self._scaled_in.get((uid, instance), ("", None))
            if not spec.reuse or (term is not None and passes.works(term)):
                yield f"claim {name} at rest: its Pod was scaled in, or claims are not used again"


def _wanted(known: Pass) -> set[str]:
    """The instance ids of the Pods that the pass set out to make."""
    return {name.rpartition("-")[2] for name in known.wanted}


def _serves(pod: Any) -> bool:
    """Return whether the controller counts on a Pod that it knows."""
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
