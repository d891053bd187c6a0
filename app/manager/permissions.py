"""What the manager itself reads and writes, beside what handlers and controllers declare."""

from __future__ import annotations

from typing import Final

from app.admission.configurations import MUTATING_NAME, VALIDATING_NAME
from app.api.registry import KINDS
from app.kube.admission import PolicyRule
from app.kube.resources import LEASES
from app.manager.handlers import WEBHOOKS
from app.manager.settings import SECRET_NAME
from app.pods.readiness import controller as readiness
from app.sidecars.launchpriority import controller as launch_barrier
from app.sidecars.sidecarset import controller as sidecarset_controller
from app.workloads.cloneset import controller as cloneset_controller

_CONFIGURATIONS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_ADMISSION_GROUP: Final = ("admissionregistration.k8s.io",)
_EXTENSIONS_GROUP: Final = ("apiextensions.k8s.io",)

MANAGER: Final = (
    # The serving certificate. "create" cannot be limited to a name.
    PolicyRule(("create",), ("",), ("secrets",), own_namespace=True),
    PolicyRule(("get", "list", "watch", "update"), ("",), ("secrets",), names=(SECRET_NAME,), own_namespace=True),
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
    # Leadership; the Lease can be named by a flag. Watched, so that one given back is taken at once.
    PolicyRule(("get", "list", "watch", "create", "patch"), (LEASES.group,), (LEASES.plural,), own_namespace=True),
)


def all_rules() -> tuple[PolicyRule, ...]:
    """Everything a manager of this build needs."""
    declared = tuple(rule for webhook in WEBHOOKS for rule in webhook.permissions)
    controllers = (
        *sidecarset_controller.PERMISSIONS,
        *readiness.PERMISSIONS,
        *launch_barrier.PERMISSIONS,
        *cloneset_controller.PERMISSIONS,
    )
    return (*MANAGER, *declared, *controllers)
