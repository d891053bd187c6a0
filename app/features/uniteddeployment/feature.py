"""Declaration of the UnitedDeployment feature."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.features.uniteddeployment import webhooks
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.features.uniteddeployment.reconcile import NAME, WATCHED, uniteddeployment_controller
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature, Protected, lazily
from app.kube.admission import PolicyRule
from app.pods.template_check import GATE, TemplateLookups


def decisions(context: AdmissionContext) -> Decisions:
    """Return the handlers of both webhooks."""
    lookups = TemplateLookups(context.enabled, context.client, context.own_namespace)
    return Decisions(webhooks.handlers(lookups, short_hash=context.enabled(webhooks.SHORT_HASH_GATE)))


FEATURE: Final = Feature(
    name="uniteddeployment",
    kinds=(UNITED_DEPLOYMENT,),
    controllers=(
        ControllerPart(
            NAME,
            watched=WATCHED,
            make=uniteddeployment_controller,
            permissions=(
                PolicyRule(("get",), (names.APPS_GROUP,), ("uniteddeployments",)),
                PolicyRule(("patch",), (names.APPS_GROUP,), ("uniteddeployments/status",)),
                # Setting blockOwnerDeletion in an owner reference requires update permission on the finalizers of the
                # owner.
                PolicyRule(("update",), (names.APPS_GROUP,), ("uniteddeployments/finalizers",)),
                PolicyRule(("create", "delete", "get", "patch"), ("apps",), ("deployments", "statefulsets")),
                PolicyRule(("create", "delete", "get", "patch"), (names.APPS_GROUP,), ("clonesets", "statefulsets")),
                PolicyRule(("create", "delete", "get", "patch"), ("apps",), ("controllerrevisions",)),
                # Pods are deleted [UD-50] and labeled [UD-56].
                PolicyRule(("delete", "patch"), ("",), ("pods",)),
            ),
            workers_flag="uniteddeployment-workers",
        ),
    ),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    workloads=(UNITED_DEPLOYMENT,),
    commands=lazily("app.features.uniteddeployment.commands:COMMANDS"),
    gates=(GATE,),
    protected=(Protected(UNITED_DEPLOYMENT, cascading="replicas"),),
)
