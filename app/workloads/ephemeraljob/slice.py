"""The slice of EphemeralJob."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.ephemeraljob import EPHEMERAL_JOB
from app.kube.admission import PolicyRule
from app.slices import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Slice
from app.workloads.ephemeraljob import admission
from app.workloads.ephemeraljob.controller import NAME, WATCHED, WORKERS, ephemeraljob_controller

_KIND: Final = EPHEMERAL_JOB.plural


def decisions(context: AdmissionContext) -> Decisions:  # noqa: ARG001
    """The handler of the webhook."""
    return Decisions(admission.handlers())


SLICE: Final = Slice(
    name="ephemeraljob",
    kinds=(EPHEMERAL_JOB,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=ephemeraljob_controller,
            permissions=(
                PolicyRule(("delete", "get", "patch"), (names.APPS_GROUP,), (_KIND,)),
                PolicyRule(("patch",), (names.APPS_GROUP,), (f"{_KIND}/status",)),
                PolicyRule(("patch",), ("",), ("pods/ephemeralcontainers",)),
                PolicyRule(("create", "patch"), ("",), ("events",)),
            ),
            workers=WORKERS,
        ),
    ),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    flags=("expectation-timeout",),
)
