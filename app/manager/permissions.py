"""What the manager itself reads and writes, beside what handlers and controllers declare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.admission.configurations import MUTATING_NAME, VALIDATING_NAME
from app.api.registry import KINDS
from app.kube.admission import PolicyRule, Webhook
from app.kube.resources import LEASES, SELFSUBJECTRULESREVIEWS
from app.manager.handlers import WEBHOOKS
from app.manager.settings import SECRET_NAME, Settings
from app.pods.readiness import controller as readiness
from app.sidecars.launchpriority import controller as launch_barrier
from app.sidecars.sidecarset import controller as sidecarset_controller
from app.workloads.cloneset import controller as cloneset_controller

_CONFIGURATIONS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_ADMISSION_GROUP: Final = ("admissionregistration.k8s.io",)
_EXTENSIONS_GROUP: Final = ("apiextensions.k8s.io",)

#: The serving certificate. "create" cannot be limited to a name.
_CERTIFICATE: Final = (
    PolicyRule(("create",), ("",), ("secrets",), own_namespace=True),
    PolicyRule(("get", "list", "watch", "update"), ("",), ("secrets",), names=(SECRET_NAME,), own_namespace=True),
)
#: Leadership; the Lease can be named by a flag. Watched, so that one given back is taken at once.
_LEADERSHIP: Final = (
    PolicyRule(("get", "list", "watch", "create", "patch"), (LEASES.group,), (LEASES.plural,), own_namespace=True),
)
_REGISTRATION: Final = (
    PolicyRule(("create",), _ADMISSION_GROUP, _CONFIGURATIONS),
    PolicyRule(
        ("get", "list", "watch", "update"), _ADMISSION_GROUP, _CONFIGURATIONS, names=(MUTATING_NAME, VALIDATING_NAME)
    ),
    # caBundle of the conversion webhooks.
    PolicyRule(
        ("get", "list", "watch", "patch"),
        _EXTENSIONS_GROUP,
        ("customresourcedefinitions",),
        names=tuple(kind.crd_name for kind in KINDS if len(kind.versions) > 1),
    ),
    PolicyRule(("create", "patch"), ("",), ("events",)),
    # To say which right is missing (rights.py).
    PolicyRule(("create",), (SELFSUBJECTRULESREVIEWS.group,), (SELFSUBJECTRULESREVIEWS.plural,)),
)
_CONTROLLERS: Final = (*cloneset_controller.PERMISSIONS, *sidecarset_controller.PERMISSIONS, *readiness.PERMISSIONS)


#: What ``--namespace`` limits: Pods, workloads of ours, and what is made for both.
_OF_ONE_NAMESPACE: Final = frozenset(
    {"pods", "clonesets", "persistentvolumeclaims", "controllerrevisions", "configmaps"}
)


def all_rules() -> tuple[PolicyRule, ...]:
    """Everything a manager of this build needs."""
    return (
        *_CERTIFICATE,
        *_LEADERSHIP,
        *_REGISTRATION,
        *_of_webhooks(WEBHOOKS),
        *_CONTROLLERS,
        *launch_barrier.PERMISSIONS,
    )


def rules_of(settings: Settings, webhooks: Iterable[Webhook]) -> tuple[PolicyRule, ...]:
    """What one replica needs that serves these webhooks."""
    flags = settings.flags
    found = [*_REGISTRATION, *_of_webhooks(webhooks), *_CONTROLLERS]
    if settings.certificate_folder is None:
        verbs = ("get", "list", "watch") if settings.external_certificates else ("get", "list", "watch", "update")
        if not settings.external_certificates:
            found.append(_CERTIFICATE[0])
        found.append(PolicyRule(verbs, ("",), ("secrets",), names=(settings.secret_name,), own_namespace=True))
    elsewhere = flags.text("leader-election-namespace") != settings.own_namespace
    if settings.election is not None and not ("leader-election-namespace" in flags.given and elsewhere):
        found += _LEADERSHIP
    if settings.gates.enabled(launch_barrier.GATE):
        found += launch_barrier.PERMISSIONS
    if flags.text("namespace"):
        # These are watched and written in one namespace only, where a Role may be all that is granted.
        found = [rule for rule in found if rule.own_namespace or _kinds_of(rule).isdisjoint(_OF_ONE_NAMESPACE)]
    return tuple(found)


def _kinds_of(rule: PolicyRule) -> set[str]:
    return {resource.partition("/")[0] for resource in rule.resources}


def _of_webhooks(webhooks: Iterable[Webhook]) -> tuple[PolicyRule, ...]:
    return tuple(rule for webhook in webhooks for rule in webhook.permissions)
