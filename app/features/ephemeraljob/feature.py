"""Feature declaration of EphemeralJob."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.ephemeraljob import webhooks
from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from app.features.ephemeraljob.reconcile import NAME, WATCHED, ephemeraljob_controller
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature, lazily
from app.kube.admission import PolicyRule

_KIND: Final = EPHEMERAL_JOB.plural


def decisions(context: AdmissionContext) -> Decisions:  # noqa: ARG001
    """Return the webhook handlers."""
    return Decisions(webhooks.handlers())


FEATURE: Final = Feature(
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
                PolicyRule(("get",), ("",), ("pods",)),
                PolicyRule(("patch",), ("",), ("pods/ephemeralcontainers",)),
            ),
            workers=10,
        ),
    ),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    flags=("expectation-timeout",),
    commands=lazily("app.features.ephemeraljob.commands:COMMANDS"),
    verbs=lazily("app.features.ephemeraljob.commands:DEBUG"),
)
