"""The slice of EphemeralJob."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.ephemeraljob import EPHEMERAL_JOB
from app.kube.admission import PolicyRule
from app.slices import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Slice
from app.slices.commands import Commands
from app.slices.verbs import LongVerb
from app.workloads.ephemeraljob import admission
from app.workloads.ephemeraljob.controller import NAME, WATCHED, WORKERS, ephemeraljob_controller

_KIND: Final = EPHEMERAL_JOB.plural


def decisions(context: AdmissionContext) -> Decisions:  # noqa: ARG001
    """The handler of the webhook."""
    return Decisions(admission.handlers())


def commands() -> tuple[Commands, ...]:
    """What the command line knows."""
    from app.workloads.ephemeraljob.commands import COMMANDS

    return (COMMANDS,)


def long_verbs() -> tuple[LongVerb, ...]:
    """``pykruise debug``."""
    from app.workloads.ephemeraljob.commands import DEBUG

    return (DEBUG,)


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
                PolicyRule(("get",), ("",), ("pods",)),
                PolicyRule(("patch",), ("",), ("pods/ephemeralcontainers",)),
                PolicyRule(("create", "patch"), ("",), ("events",)),
            ),
            workers=WORKERS,
        ),
    ),
    admission=(AdmissionPart(decisions, webhooks=admission.WEBHOOKS),),
    flags=("expectation-timeout",),
    commands=commands,
    long_verbs=long_verbs,
)
