"""Pods that were created without their sidecars, as their own condition and that of their SidecarSet tell it. Pure.

Condition ``SidecarsMissing`` of a Pod names the sets; it is written once, after the webhook was away (MGR-123), and so
outlives whoever found the Pod. Condition ``PodsMissed`` of a set counts such Pods that still run. SS-136.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.pods.predicates import is_active
from app.sidecars.sidecarset.plan.records import injected_sets

#: The index of Pods by the sets whose containers they lack.
MISSED_BY: Final = "missed-by-sidecarset"
SIDECARS_MISSING: Final = "SidecarsMissing"
PODS_MISSED: Final = "PodsMissed"
CREATED_UNREVIEWED: Final = "CreatedWithoutReview"
#: Pods that a set's condition names.
NAMED: Final = 3
#: Characters of a condition's message that are read: more than any list of ours needs.
_READ: Final = 16384
_SETS: Final = re.compile(r"SidecarSet ([a-z0-9.-]+(?:, [a-z0-9.-]+)*)")


def message(sets: Sequence[str]) -> str:
    """What a Pod's event and its condition say."""
    return (
        "created while the webhook was not registered, without the containers of SidecarSet "
        f"{', '.join(sets)}; delete the Pod, so that it is created anew with them"
    )


def missing_from(pod: Pod) -> tuple[str, ...]:
    """The sets that the Pod's condition names, none of which has injected it meanwhile; the index function."""
    condition = pod.condition(SIDECARS_MISSING)
    if condition is None or condition.status != "True" or not is_active(pod):
        return ()
    found = _SETS.search((condition.message or "")[:_READ])
    if found is None:
        return ()
    injected = injected_sets(pod.metadata.annotations)
    return tuple(dict.fromkeys(name for name in found[1].split(", ") if name not in injected))


def pod_patch(pod: Pod, sets: Sequence[str], now: datetime) -> dict[str, Any]:
    """The strategic merge patch of the Pod's status that says which sets it lacks."""
    condition = {
        "type": SIDECARS_MISSING,
        "status": "True",
        "reason": CREATED_UNREVIEWED,
        "message": message(sets),
        "lastTransitionTime": rfc3339(now),
    }
    return {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}


def missed_pods(pods: Iterable[Pod], name: str) -> list[Pod]:
    """Those of the Pods that lack this set, by namespace and name."""
    found = [pod for pod in pods if name in missing_from(pod)]
    return sorted(found, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))


def set_conditions(present: object, missed: Sequence[Pod], now: datetime) -> list[Mapping[str, Any]] | None:
    """A set's conditions as they are to be; those of others stay. None where nothing is to be written."""
    conditions = [one for one in present if isinstance(one, Mapping)] if isinstance(present, list) else []
    known = next((one for one in conditions if one.get("type") == PODS_MISSED), None)
    others = [one for one in conditions if one.get("type") != PODS_MISSED]
    if not missed:
        return others if known is not None else None
    named = ", ".join(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in missed[:NAMED])
    more = f" and {len(missed) - NAMED} more" if len(missed) > NAMED else ""
    number = f"{len(missed)} Pods run" if len(missed) > 1 else "1 Pod runs"
    text = f"{number} without the containers, created while no webhook was asked: {named}{more}"
    if known is not None and known.get("message") == text and known.get("status") == "True":
        return None
    since = known.get("lastTransitionTime") if known is not None and known.get("status") == "True" else None
    return [
        *others,
        {
            "type": PODS_MISSED,
            "status": "True",
            "lastTransitionTime": since or rfc3339(now),
            "reason": CREATED_UNREVIEWED,
            "message": text,
        },
    ]
