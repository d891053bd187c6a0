"""The core PodTemplateSpec of Kubernetes as Go reads and prints it, for revisions made of it (PM-80, PM-84).

The order is that of the Go structs as of Kubernetes 1.34. Revisions sort their keys, so here only matters what is left
out when empty and what is not.
"""

from __future__ import annotations

from typing import Final

from app.api.gocore import CONTAINER, CONTAINER_FIELDS, LABEL_SELECTOR, RESOURCE_REQUIREMENTS, always, optional
from app.api.gojson import (
    BOOL,
    INT32,
    INT64,
    QUANTITY,
    STRING,
    GoType,
    list_of,
    map_of,
    pointer,
    struct,
)
from app.api.govolumes import NO_TIME, VOLUME

_STRINGS: Final = list_of(STRING)
_TEXTS: Final = map_of(STRING)
_BOOL: Final = pointer(BOOL)
_INT32: Final = pointer(INT32)
_INT64: Final = pointer(INT64)
_TEXT: Final = pointer(STRING)

OBJECT_META: Final = struct(
    optional("name"),
    optional("generateName"),
    optional("namespace"),
    optional("uid"),
    optional("resourceVersion"),
    optional("generation", INT64),
    always("creationTimestamp", NO_TIME),
    optional("labels", _TEXTS),
    optional("annotations", _TEXTS),
    optional(
        "ownerReferences",
        list_of(
            struct(
                always("apiVersion"),
                always("kind"),
                always("name"),
                always("uid"),
                optional("controller", _BOOL),
                optional("blockOwnerDeletion", _BOOL),
            )
        ),
    ),
    optional("finalizers", _STRINGS),
)

_EXPRESSIONS: Final = list_of(struct(always("key"), always("operator"), optional("values", _STRINGS)))
_NODE_TERM: Final = struct(optional("matchExpressions", _EXPRESSIONS), optional("matchFields", _EXPRESSIONS))
_POD_TERM: Final = struct(
    optional("labelSelector", pointer(LABEL_SELECTOR)),
    optional("namespaces", _STRINGS),
    always("topologyKey"),
    optional("namespaceSelector", pointer(LABEL_SELECTOR)),
    optional("matchLabelKeys", _STRINGS),
    optional("mismatchLabelKeys", _STRINGS),
)


def _scheduling(required: GoType, term_name: str, term: GoType) -> GoType:
    weighted = struct(always("weight", INT32), always(term_name, term))
    return pointer(
        struct(
            optional("requiredDuringSchedulingIgnoredDuringExecution", required),
            optional("preferredDuringSchedulingIgnoredDuringExecution", list_of(weighted)),
        )
    )


_NODE_SELECTOR: Final = pointer(struct(always("nodeSelectorTerms", list_of(_NODE_TERM))))
_POD_AFFINITY: Final = _scheduling(list_of(_POD_TERM), "podAffinityTerm", _POD_TERM)
_AFFINITY: Final = struct(
    optional("nodeAffinity", _scheduling(_NODE_SELECTOR, "preference", _NODE_TERM)),
    optional("podAffinity", _POD_AFFINITY),
    optional("podAntiAffinity", _POD_AFFINITY),
)

_PROFILE: Final = pointer(struct(always("type"), optional("localhostProfile", _TEXT)))
_SECURITY_CONTEXT: Final = struct(
    optional(
        "seLinuxOptions", pointer(struct(optional("user"), optional("role"), optional("type"), optional("level")))
    ),
    optional(
        "windowsOptions",
        pointer(
            struct(
                optional("gmsaCredentialSpecName", _TEXT),
                optional("gmsaCredentialSpec", _TEXT),
                optional("runAsUserName", _TEXT),
                optional("hostProcess", _BOOL),
            )
        ),
    ),
    optional("runAsUser", _INT64),
    optional("runAsGroup", _INT64),
    optional("runAsNonRoot", _BOOL),
    optional("supplementalGroups", list_of(INT64)),
    optional("supplementalGroupsPolicy", _TEXT),
    optional("fsGroup", _INT64),
    optional("sysctls", list_of(struct(always("name"), always("value")))),
    optional("fsGroupChangePolicy", _TEXT),
    optional("seccompProfile", _PROFILE),
    optional("appArmorProfile", _PROFILE),
    optional("seLinuxChangePolicy", _TEXT),
)
_SPREAD_CONSTRAINT: Final = struct(
    always("maxSkew", INT32),
    always("topologyKey"),
    always("whenUnsatisfiable"),
    optional("labelSelector", pointer(LABEL_SELECTOR)),
    optional("minDomains", _INT32),
    optional("nodeAffinityPolicy", _TEXT),
    optional("nodeTaintsPolicy", _TEXT),
    optional("matchLabelKeys", _STRINGS),
)
_TOLERATION: Final = struct(
    optional("key"), optional("operator"), optional("value"), optional("effect"), optional("tolerationSeconds", _INT64)
)
_DNS_CONFIG: Final = struct(
    optional("nameservers", _STRINGS),
    optional("searches", _STRINGS),
    optional("options", list_of(struct(optional("name"), optional("value", _TEXT)))),
)

POD_SPEC: Final = struct(
    optional("volumes", list_of(VOLUME)),
    optional("initContainers", list_of(CONTAINER)),
    always("containers", list_of(CONTAINER)),
    optional("ephemeralContainers", list_of(struct(*CONTAINER_FIELDS, optional("targetContainerName")))),
    optional("restartPolicy"),
    optional("terminationGracePeriodSeconds", _INT64),
    optional("activeDeadlineSeconds", _INT64),
    optional("dnsPolicy"),
    optional("nodeSelector", _TEXTS),
    optional("serviceAccountName"),
    optional("serviceAccount"),
    optional("automountServiceAccountToken", _BOOL),
    optional("nodeName"),
    optional("hostNetwork", BOOL),
    optional("hostPID", BOOL),
    optional("hostIPC", BOOL),
    optional("shareProcessNamespace", _BOOL),
    optional("securityContext", pointer(_SECURITY_CONTEXT)),
    optional("imagePullSecrets", list_of(struct(optional("name")))),
    optional("hostname"),
    optional("subdomain"),
    optional("affinity", pointer(_AFFINITY)),
    optional("schedulerName"),
    optional("tolerations", list_of(_TOLERATION)),
    optional("hostAliases", list_of(struct(always("ip"), optional("hostnames", _STRINGS)))),
    optional("priorityClassName"),
    optional("priority", _INT32),
    optional("dnsConfig", pointer(_DNS_CONFIG)),
    optional("readinessGates", list_of(struct(always("conditionType")))),
    optional("runtimeClassName", _TEXT),
    optional("enableServiceLinks", _BOOL),
    optional("preemptionPolicy", _TEXT),
    optional("overhead", map_of(QUANTITY)),
    optional("topologySpreadConstraints", list_of(_SPREAD_CONSTRAINT)),
    optional("setHostnameAsFQDN", _BOOL),
    optional("os", pointer(struct(always("name")))),
    optional("hostUsers", _BOOL),
    optional("schedulingGates", list_of(struct(always("name")))),
    optional(
        "resourceClaims",
        list_of(
            struct(always("name"), optional("resourceClaimName", _TEXT), optional("resourceClaimTemplateName", _TEXT))
        ),
    ),
    optional("resources", pointer(RESOURCE_REQUIREMENTS)),
    optional("hostnameOverride", _TEXT),
)
POD_TEMPLATE: Final = struct(optional("metadata", OBJECT_META), optional("spec", POD_SPEC))
