"""Facts about Pods for tests of the plan."""

from __future__ import annotations

import itertools
from math import inf

from app.api import names
from app.kube.objects import ObjectMeta, Pod
from app.workloads.pods import PodFacts

OLD, NEW = "oldhash", "newhash"
#: The finalizer of an update hook.
HOLD = "example.com/hold"
_numbers = itertools.count()


def pod(
    revision: str = NEW,
    *,
    name: str = "",
    available: bool = True,
    ready: bool | None = None,
    lifecycle: str = "Normal",
    marked: bool = False,
    delete_hooked: bool = False,
    update_hooked: bool = False,
    in_grace: bool = False,
    awaits_initial_conditions: bool = False,
) -> PodFacts:
    """``ready`` ignores minReadySeconds and defaults to ``available``."""
    name = name or f"web-{next(_numbers):05}"
    normal = lifecycle in ("", "Normal")
    ready = available if ready is None else ready
    return PodFacts(
        pod=Pod(
            metadata=ObjectMeta(
                name=name,
                namespace="default",
                uid=f"uid-{name}",
                resource_version="1",
                labels={names.LIFECYCLE_STATE: lifecycle} if lifecycle else {},
                finalizers=(HOLD,) if update_hooked else (),
            )
        ),
        name=name,
        revision=revision,
        lifecycle=lifecycle,
        preparing_delete=lifecycle == "PreparingDelete",
        available_after=-inf if available and normal else inf,
        update_ready=ready,
        delete_ready=ready and normal,
        marked=marked,
        delete_hooked=delete_hooked,
        in_grace=in_grace,
        settled=normal and not in_grace,
        awaits_initial_conditions=awaits_initial_conditions,
    )
