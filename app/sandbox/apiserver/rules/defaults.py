"""Defaults of built-in kinds as data: paths and their default values.

In a path, ``[]`` visits every item of a list, and ``!`` creates a missing object (otherwise its defaults are skipped).
Source: Kubernetes 1.34, pkg/apis/*/v*/defaults.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from app.kube.jsonvalues import json_copy

Json: TypeAlias = dict[str, Any]
Rows: TypeAlias = tuple[tuple[str, Any], ...]

_WEBHOOK: Final[Rows] = (
    ("webhooks.[].failurePolicy", "Fail"),
    ("webhooks.[].matchPolicy", "Equivalent"),
    ("webhooks.[].namespaceSelector", {}),
    ("webhooks.[].objectSelector", {}),
    ("webhooks.[].timeoutSeconds", 10),
    ("webhooks.[].rules.[].scope", "*"),
    ("webhooks.[].clientConfig.service.port", 443),
)
_CLAIM: Final[Rows] = (("spec.volumeMode", "Filesystem"), ("status!.phase", "Pending"))

DEFAULTS: Final[Mapping[str, Rows]] = {
    "deployments.apps": (
        ("spec!.replicas", 1),
        ("spec!.strategy!.type", "RollingUpdate"),
        ("spec!.revisionHistoryLimit", 10),
        ("spec!.progressDeadlineSeconds", 600),
        ("status", {}),
    ),
    "statefulsets.apps": (
        ("spec!.replicas", 1),
        ("spec!.podManagementPolicy", "OrderedReady"),
        ("spec!.serviceName", ""),
        ("spec!.updateStrategy!.type", "RollingUpdate"),
        ("spec!.revisionHistoryLimit", 10),
        ("spec!.persistentVolumeClaimRetentionPolicy!.whenDeleted", "Retain"),
        ("spec!.persistentVolumeClaimRetentionPolicy!.whenScaled", "Retain"),
        ("spec.volumeClaimTemplates.[].kind", "PersistentVolumeClaim"),
        ("spec.volumeClaimTemplates.[].apiVersion", "v1"),
        ("spec.volumeClaimTemplates.[].spec.volumeMode", "Filesystem"),
        ("spec.volumeClaimTemplates.[].status!.phase", "Pending"),
        ("status!.replicas", 0),
        ("status!.availableReplicas", 0),
    ),
    "daemonsets.apps": (
        ("spec!.updateStrategy!.type", "RollingUpdate"),
        ("spec!.revisionHistoryLimit", 10),
        ("status!.currentNumberScheduled", 0),
        ("status!.desiredNumberScheduled", 0),
        ("status!.numberMisscheduled", 0),
        ("status!.numberReady", 0),
    ),
    "replicasets.apps": (("spec!.replicas", 1), ("status!.replicas", 0)),
    "replicationcontrollers": (("spec!.replicas", 1), ("status!.replicas", 0)),
    "jobs.batch": (
        ("spec!.backoffLimit", 6),
        ("spec!.completionMode", "NonIndexed"),
        ("spec!.suspend", False),
        ("spec!.manualSelector", False),
        ("spec!.podReplacementPolicy", "TerminatingOrFailed"),
        ("status", {}),
    ),
    "cronjobs.batch": (
        ("spec!.concurrencyPolicy", "Allow"),
        ("spec!.suspend", False),
        ("spec!.successfulJobsHistoryLimit", 3),
        ("spec!.failedJobsHistoryLimit", 1),
        ("spec.jobTemplate.metadata", {}),
        ("status", {}),
    ),
    "services": (
        ("spec!.sessionAffinity", "None"),
        ("spec!.type", "ClusterIP"),
        ("spec.ports.[].protocol", "TCP"),
        ("status!.loadBalancer", {}),
    ),
    "endpoints": (("subsets.[].ports.[].protocol", "TCP"),),
    "resourcequotas": (("status", {}),),
    "endpointslices.discovery.k8s.io": (
        ("endpoints.[].conditions", {}),
        ("ports.[].name", ""),
        ("ports.[].protocol", "TCP"),
    ),
    "secrets": (("type", "Opaque"),),
    "persistentvolumeclaims": _CLAIM,
    "persistentvolumes": (
        ("spec!.persistentVolumeReclaimPolicy", "Retain"),
        ("spec.volumeMode", "Filesystem"),
        ("spec.hostPath.type", ""),
        ("status!.phase", "Pending"),
    ),
    "events": (
        ("source", {}),
        ("firstTimestamp", None),
        ("lastTimestamp", None),
        ("eventTime", None),
        ("reportingComponent", ""),
        ("reportingInstance", ""),
    ),
    "poddisruptionbudgets.policy": (
        ("status!.disruptionsAllowed", 0),
        ("status!.currentHealthy", 0),
        ("status!.desiredHealthy", 0),
        ("status!.expectedPods", 0),
    ),
    "storageclasses.storage.k8s.io": (("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")),
    "priorityclasses.scheduling.k8s.io": (("preemptionPolicy", "PreemptLowerPriority"),),
    "csidrivers.storage.k8s.io": (
        ("spec!.attachRequired", True),
        ("spec!.podInfoOnMount", False),
        ("spec!.storageCapacity", False),
        ("spec!.fsGroupPolicy", "ReadWriteOnceWithFSType"),
        ("spec!.requiresRepublish", False),
        ("spec!.seLinuxMount", False),
        ("spec!.volumeLifecycleModes", ["Persistent"]),
    ),
    "networkpolicies.networking.k8s.io": (("spec!.policyTypes", ["Ingress"]), ("spec!.podSelector", {})),
    "ingresses.networking.k8s.io": (("status!.loadBalancer", {}),),
    "horizontalpodautoscalers.autoscaling": (("spec!.minReplicas", 1),),
    "roles.rbac.authorization.k8s.io": (("rules", None),),
    "clusterroles.rbac.authorization.k8s.io": (("rules", None),),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": (
        *_WEBHOOK,
        ("webhooks.[].reinvocationPolicy", "Never"),
    ),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOK,
    "validatingadmissionpolicies.admissionregistration.k8s.io": (
        ("spec!.failurePolicy", "Fail"),
        ("spec.matchConstraints.matchPolicy", "Equivalent"),
        ("spec.matchConstraints.namespaceSelector", {}),
        ("spec.matchConstraints.objectSelector", {}),
        ("spec.matchConstraints.resourceRules.[].scope", "*"),
        ("status", {}),
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": (
        ("spec.matchResources.matchPolicy", "Equivalent"),
        ("spec.matchResources.namespaceSelector", {}),
        ("spec.matchResources.objectSelector", {}),
        ("spec.matchResources.resourceRules.[].scope", "*"),
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        ("spec!.conversion!.strategy", "None"),
        ("spec.conversion.webhook.clientConfig.service.port", 443),
    ),
}
#: Path of the Pod template, by kind.
TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "podtemplates": ("template",),
    "deployments.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "replicationcontrollers": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}


@cache
def _steps(place: str) -> tuple[str, ...]:
    return tuple(place.split("."))


def fill_in(qualified: str, obj: Json) -> None:
    """Fill in the defaults of a resource, in place."""
    for place, value in DEFAULTS.get(qualified, ()):
        _fill(obj, _steps(place), value)


def _fill(target: Any, steps: tuple[str, ...], value: Any) -> None:
    step, rest = steps[0], steps[1:]
    if step == "[]":
        for item in target if isinstance(target, list) else ():
            _fill(item, rest, value)
        return
    if not isinstance(target, dict):
        return
    if not rest:
        # Go cannot tell an empty string from a missing one. All other values are kept.
        if target.get(step) is None or (target[step] == "" and isinstance(value, str)):
            target[step] = json_copy(value)
        return
    name = step.removesuffix("!")
    if name != step:
        target.setdefault(name, {})
    if name in target:
        _fill(target[name], rest, value)
