"""The Go type of a Pod, and how a strategic merge patch merges its lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.api.gocore import (
    CLAIM_SPEC,
    CONTAINER,
    CONTAINER_FIELDS,
    LABEL_SELECTOR,
    LOCAL_PROFILE,
    NO_TIME,
    RESOURCE_REQUIREMENTS,
    SE_LINUX_OPTIONS,
    VOLUME,
    WINDOWS_OPTIONS,
    always,
    optional,
)
from app.api.gojson import BOOL, INT32, INT64, QUANTITY, STRING, GoType, list_of, map_of, pointer, struct

# Kubernetes' PodTemplateSpec and PersistentVolumeClaim, as Go unmarshals and marshals them.
#
# OpenKruise stores templates and creates revisions in this form. The order is that of the Go structs in Kubernetes
# 1.34.

_STRINGS: Final = list_of(STRING)
_TEXTS: Final = map_of(STRING)
_SECRETS: Final = list_of(struct(optional("name")))

_REQUIREMENTS: Final = list_of(struct(always("key"), always("operator"), optional("values", _STRINGS)))
_NODE_TERM: Final = struct(optional("matchExpressions", _REQUIREMENTS), optional("matchFields", _REQUIREMENTS))
_NODE_AFFINITY: Final = struct(
    optional(
        "requiredDuringSchedulingIgnoredDuringExecution",
        pointer(struct(always("nodeSelectorTerms", list_of(_NODE_TERM)))),
    ),
    optional(
        "preferredDuringSchedulingIgnoredDuringExecution",
        list_of(struct(always("weight", INT32), always("preference", _NODE_TERM))),
    ),
)
_POD_TERM: Final = struct(
    optional("labelSelector", pointer(LABEL_SELECTOR)),
    optional("namespaces", _STRINGS),
    always("topologyKey"),
    optional("namespaceSelector", pointer(LABEL_SELECTOR)),
    optional("matchLabelKeys", _STRINGS),
    optional("mismatchLabelKeys", _STRINGS),
)
_POD_AFFINITY: Final = struct(
    optional("requiredDuringSchedulingIgnoredDuringExecution", list_of(_POD_TERM)),
    optional(
        "preferredDuringSchedulingIgnoredDuringExecution",
        list_of(struct(always("weight", INT32), always("podAffinityTerm", _POD_TERM))),
    ),
)
_AFFINITY: Final = struct(
    optional("nodeAffinity", pointer(_NODE_AFFINITY)),
    optional("podAffinity", pointer(_POD_AFFINITY)),
    optional("podAntiAffinity", pointer(_POD_AFFINITY)),
)

_SECURITY_CONTEXT: Final = struct(
    optional("seLinuxOptions", pointer(SE_LINUX_OPTIONS)),
    optional("windowsOptions", pointer(WINDOWS_OPTIONS)),
    optional("runAsUser", pointer(INT64)),
    optional("runAsGroup", pointer(INT64)),
    optional("runAsNonRoot", pointer(BOOL)),
    optional("supplementalGroups", list_of(INT64)),
    optional("supplementalGroupsPolicy", pointer(STRING)),
    optional("fsGroup", pointer(INT64)),
    optional("sysctls", list_of(struct(always("name"), always("value")))),
    optional("fsGroupChangePolicy", pointer(STRING)),
    optional("seccompProfile", pointer(LOCAL_PROFILE)),
    optional("appArmorProfile", pointer(LOCAL_PROFILE)),
    optional("seLinuxChangePolicy", pointer(STRING)),
)
_TOLERATION: Final = struct(
    optional("key"),
    optional("operator"),
    optional("value"),
    optional("effect"),
    optional("tolerationSeconds", pointer(INT64)),
)
_DNS_CONFIG: Final = struct(
    optional("nameservers", _STRINGS),
    optional("searches", _STRINGS),
    optional("options", list_of(struct(optional("name"), optional("value", pointer(STRING))))),
)
_SPREAD_CONSTRAINT: Final = struct(
    always("maxSkew", INT32),
    always("topologyKey"),
    always("whenUnsatisfiable"),
    optional("labelSelector", pointer(LABEL_SELECTOR)),
    optional("minDomains", pointer(INT32)),
    optional("nodeAffinityPolicy", pointer(STRING)),
    optional("nodeTaintsPolicy", pointer(STRING)),
    optional("matchLabelKeys", _STRINGS),
)
_RESOURCE_CLAIM: Final = struct(
    always("name"),
    optional("resourceClaimName", pointer(STRING)),
    optional("resourceClaimTemplateName", pointer(STRING)),
)

POD_SPEC: Final = struct(
    optional("volumes", list_of(VOLUME)),
    optional("initContainers", list_of(CONTAINER)),
    always("containers", list_of(CONTAINER)),
    optional("ephemeralContainers", list_of(struct(*CONTAINER_FIELDS, optional("targetContainerName")))),
    optional("restartPolicy"),
    optional("terminationGracePeriodSeconds", pointer(INT64)),
    optional("activeDeadlineSeconds", pointer(INT64)),
    optional("dnsPolicy"),
    optional("nodeSelector", _TEXTS),
    optional("serviceAccountName"),
    optional("serviceAccount"),
    optional("automountServiceAccountToken", pointer(BOOL)),
    optional("nodeName"),
    optional("hostNetwork", BOOL),
    optional("hostPID", BOOL),
    optional("hostIPC", BOOL),
    optional("shareProcessNamespace", pointer(BOOL)),
    optional("securityContext", pointer(_SECURITY_CONTEXT)),
    optional("imagePullSecrets", _SECRETS),
    optional("hostname"),
    optional("subdomain"),
    optional("affinity", pointer(_AFFINITY)),
    optional("schedulerName"),
    optional("tolerations", list_of(_TOLERATION)),
    optional("hostAliases", list_of(struct(always("ip"), optional("hostnames", _STRINGS)))),
    optional("priorityClassName"),
    optional("priority", pointer(INT32)),
    optional("dnsConfig", pointer(_DNS_CONFIG)),
    optional("readinessGates", list_of(struct(always("conditionType")))),
    optional("runtimeClassName", pointer(STRING)),
    optional("enableServiceLinks", pointer(BOOL)),
    optional("preemptionPolicy", pointer(STRING)),
    optional("overhead", map_of(QUANTITY)),
    optional("topologySpreadConstraints", list_of(_SPREAD_CONSTRAINT)),
    optional("setHostnameAsFQDN", pointer(BOOL)),
    optional("os", pointer(struct(always("name")))),
    optional("hostUsers", pointer(BOOL)),
    optional("schedulingGates", list_of(struct(always("name")))),
    optional("resourceClaims", list_of(_RESOURCE_CLAIM)),
    optional("resources", pointer(RESOURCE_REQUIREMENTS)),
    optional("hostnameOverride", pointer(STRING)),
)

#: ObjectMeta of an embedded object, such as a Pod template. Fields that are not listed
#: are not used in embedded objects and are kept unchanged.
METADATA: Final = struct(
    optional("name"),
    optional("generateName"),
    optional("namespace"),
    always("creationTimestamp", NO_TIME),
    optional("labels", _TEXTS),
    optional("annotations", _TEXTS),
    optional("finalizers", _STRINGS),
)
POD_TEMPLATE: Final = struct(optional("metadata", METADATA), optional("spec", POD_SPEC))

_CLAIM_STATUS: Final = struct(
    optional("phase"), optional("accessModes", _STRINGS), optional("capacity", map_of(QUANTITY))
)
CLAIM: Final[GoType] = struct(
    optional("kind"),
    optional("apiVersion"),
    optional("metadata", METADATA),
    optional("spec", CLAIM_SPEC),
    optional("status", _CLAIM_STATUS),
)
#: Go types of the fields in workload specs that the models leave untyped.
SPEC_TYPES: Final[Mapping[str, GoType]] = {
    "selector": pointer(LABEL_SELECTOR),
    "matchSelector": LABEL_SELECTOR,
    "template": POD_TEMPLATE,
    "volumeClaimTemplates": list_of(CLAIM),
}


@dataclass(frozen=True)
class PodType:
    """A type within a Pod, with its merge rules (see :class:`app.kube.patches.MergeType`)."""

    fields: Mapping[str, PodType] = field(default_factory=dict)
    merge_key: str = ""
    patch_strategies: frozenset[str] = frozenset()
    items: PodType | None = None
    is_object: bool = True

    def child(self, name: str) -> PodType | None:
        """Return the type of a field, or None if it has no merge rules."""
        return self.fields.get(name)


_MERGE: Final = frozenset({"merge"})
_RETAIN_KEYS: Final = frozenset({"retainKeys"})
_TEXT: Final = PodType(is_object=False)


def _merged(key: str, **fields: PodType) -> PodType:
    return PodType(merge_key=key, patch_strategies=_MERGE, items=PodType(fields), is_object=False)


_CONTAINERS: Final = _merged(
    "name",
    ports=_merged("containerPort"),
    env=_merged("name"),
    volumeMounts=_merged("mountPath"),
    volumeDevices=_merged("devicePath"),
)
#: A volume has one source: a patch with another source replaces it.
_VOLUMES: Final = PodType(
    merge_key="name", patch_strategies=_MERGE | _RETAIN_KEYS, items=PodType(patch_strategies=_RETAIN_KEYS)
)
_SPEC: Final = PodType(
    {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "ephemeralContainers": _CONTAINERS,
        "volumes": _VOLUMES,
        "imagePullSecrets": _merged("name"),
        "hostAliases": _merged("ip"),
        "topologySpreadConstraints": _merged("topologyKey"),
        "resourceClaims": _merged("name"),
        "schedulingGates": _merged("name"),
    }
)
_METADATA_MERGE: Final = PodType(
    {
        "ownerReferences": _merged("uid"),
        "finalizers": PodType(patch_strategies=_MERGE, items=_TEXT, is_object=False),
    }
)
#: A Pod or Pod template.
POD: Final = PodType({"metadata": _METADATA_MERGE, "spec": _SPEC})
