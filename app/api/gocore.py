"""Go types of the core API that a Pod is built from. The Pod type itself is in gopod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.gojson import (
    BOOL,
    INT32,
    INT64,
    INT_OR_STRING,
    QUANTITY,
    STRING,
    GoField,
    GoType,
    go_value,
    list_of,
    map_of,
    pointer,
    struct,
)

# Kubernetes' core Container and all its types, as Go unmarshals and marshals them. [SS-12, SS-13]
#
# One table per type, in the order of the Go struct in Kubernetes 1.34. OpenKruise hashes containers in this order, so a
# line must never move. ``restartPolicyRules`` comes last, because it was added after hashes had been stored; where the
# field is unset, it does not affect the hash.


def optional(name: str, go_type: GoType = STRING) -> GoField:
    """Return a field whose JSON tag has omitempty."""
    return GoField(name, go_type)


def always(name: str, go_type: GoType = STRING) -> GoField:
    """Return a field that is marshaled even when empty."""
    return GoField(name, go_type, kept=True)


_STRINGS = list_of(STRING)

LABEL_SELECTOR = struct(
    optional("matchLabels", map_of(STRING)),
    optional(
        "matchExpressions", list_of(struct(always("key"), always("operator"), optional("values", list_of(STRING))))
    ),
)

_CONTAINER_PORT = struct(
    optional("name"),
    optional("hostPort", INT32),
    always("containerPort", INT32),
    optional("protocol"),
    optional("hostIP"),
)

_OPTIONAL = optional("optional", pointer(BOOL))
_KEY_SELECTOR = struct(optional("name"), always("key"), _OPTIONAL)
_ENV_VAR_SOURCE = struct(
    optional("fieldRef", pointer(struct(optional("apiVersion"), always("fieldPath")))),
    optional(
        "resourceFieldRef",
        pointer(struct(optional("containerName"), always("resource"), optional("divisor", QUANTITY))),
    ),
    optional("configMapKeyRef", pointer(_KEY_SELECTOR)),
    optional("secretKeyRef", pointer(_KEY_SELECTOR)),
    optional("fileKeyRef", pointer(struct(always("volumeName"), always("path"), always("key"), _OPTIONAL))),
)
ENV_VAR = struct(always("name"), optional("value"), optional("valueFrom", pointer(_ENV_VAR_SOURCE)))
_ENV_SOURCE = struct(optional("name"), _OPTIONAL)
_ENV_FROM_SOURCE = struct(
    optional("prefix"), optional("configMapRef", pointer(_ENV_SOURCE)), optional("secretRef", pointer(_ENV_SOURCE))
)

RESOURCE_REQUIREMENTS = struct(
    optional("limits", map_of(QUANTITY)),
    optional("requests", map_of(QUANTITY)),
    optional("claims", list_of(struct(always("name"), optional("request")))),
)
_RESIZE_POLICY = struct(always("resourceName"), always("restartPolicy"))
_RESTART_RULE = struct(
    optional("action"),
    optional("exitCodes", pointer(struct(optional("operator"), optional("values", list_of(INT32))))),
)

VOLUME_MOUNT = struct(
    always("name"),
    optional("readOnly", BOOL),
    optional("recursiveReadOnly", pointer(STRING)),
    always("mountPath"),
    optional("subPath"),
    optional("mountPropagation", pointer(STRING)),
    optional("subPathExpr"),
)
_VOLUME_DEVICE = struct(always("name"), always("devicePath"))

_EXEC = optional("exec", pointer(struct(optional("command", _STRINGS))))
_HTTP_GET = optional(
    "httpGet",
    pointer(
        struct(
            optional("path"),
            always("port", INT_OR_STRING),
            optional("host"),
            optional("scheme"),
            optional("httpHeaders", list_of(struct(always("name"), always("value")))),
        )
    ),
)
_TCP_SOCKET = optional("tcpSocket", pointer(struct(always("port", INT_OR_STRING), optional("host"))))
PROBE = struct(
    _EXEC,
    _HTTP_GET,
    _TCP_SOCKET,
    optional("grpc", pointer(struct(always("port", INT32), always("service", pointer(STRING))))),
    optional("initialDelaySeconds", INT32),
    optional("timeoutSeconds", INT32),
    optional("periodSeconds", INT32),
    optional("successThreshold", INT32),
    optional("failureThreshold", INT32),
    optional("terminationGracePeriodSeconds", pointer(INT64)),
)
_LIFECYCLE_HANDLER = struct(_EXEC, _HTTP_GET, _TCP_SOCKET, optional("sleep", pointer(struct(always("seconds", INT64)))))
_LIFECYCLE = struct(
    optional("postStart", pointer(_LIFECYCLE_HANDLER)),
    optional("preStop", pointer(_LIFECYCLE_HANDLER)),
    optional("stopSignal", pointer(STRING)),
)

LOCAL_PROFILE = struct(always("type"), optional("localhostProfile", pointer(STRING)))
SE_LINUX_OPTIONS = struct(optional("user"), optional("role"), optional("type"), optional("level"))
WINDOWS_OPTIONS = struct(
    optional("gmsaCredentialSpecName", pointer(STRING)),
    optional("gmsaCredentialSpec", pointer(STRING)),
    optional("runAsUserName", pointer(STRING)),
    optional("hostProcess", pointer(BOOL)),
)
_SECURITY_CONTEXT = struct(
    optional("capabilities", pointer(struct(optional("add", _STRINGS), optional("drop", _STRINGS)))),
    optional("privileged", pointer(BOOL)),
    optional("seLinuxOptions", pointer(SE_LINUX_OPTIONS)),
    optional("windowsOptions", pointer(WINDOWS_OPTIONS)),
    optional("runAsUser", pointer(INT64)),
    optional("runAsGroup", pointer(INT64)),
    optional("runAsNonRoot", pointer(BOOL)),
    optional("readOnlyRootFilesystem", pointer(BOOL)),
    optional("allowPrivilegeEscalation", pointer(BOOL)),
    optional("procMount", pointer(STRING)),
    optional("seccompProfile", pointer(LOCAL_PROFILE)),
    optional("appArmorProfile", pointer(LOCAL_PROFILE)),
)

#: The fields of Container, for types that embed a Container and add fields.
CONTAINER_FIELDS: tuple[GoField, ...] = (
    always("name"),
    optional("image"),
    optional("command", _STRINGS),
    optional("args", _STRINGS),
    optional("workingDir"),
    optional("ports", list_of(_CONTAINER_PORT)),
    optional("envFrom", list_of(_ENV_FROM_SOURCE)),
    optional("env", list_of(ENV_VAR)),
    optional("resources", RESOURCE_REQUIREMENTS),
    optional("resizePolicy", list_of(_RESIZE_POLICY)),
    optional("restartPolicy", pointer(STRING)),
    optional("volumeMounts", list_of(VOLUME_MOUNT)),
    optional("volumeDevices", list_of(_VOLUME_DEVICE)),
    optional("livenessProbe", pointer(PROBE)),
    optional("readinessProbe", pointer(PROBE)),
    optional("startupProbe", pointer(PROBE)),
    optional("lifecycle", pointer(_LIFECYCLE)),
    optional("terminationMessagePath"),
    optional("terminationMessagePolicy"),
    optional("imagePullPolicy"),
    optional("securityContext", pointer(_SECURITY_CONTEXT)),
    optional("stdin", BOOL),
    optional("stdinOnce", BOOL),
    optional("tty", BOOL),
    optional("restartPolicyRules", list_of(_RESTART_RULE)),
)
CONTAINER = struct(*CONTAINER_FIELDS)


def container_json(container: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return ``container`` as Go marshals it: known fields in Go's order, canonical quantities, no empty fields.

    Raises :class:`app.api.gojson.GoTypeError`, prefixed with ``path``, for a value that does not have the field's type.
    """
    printed: dict[str, Any] = go_value(CONTAINER, container, path)
    return printed


# Kubernetes' core Volume and all its sources, as Go unmarshals and marshals them.
#
# Revision names of our kinds are derived from this JSON, so it must equal OpenKruise's byte for byte. The order is that
# of the Go structs in Kubernetes 1.34. [SS-73, SS-74]


def _source(*fields: GoField) -> GoType:
    return pointer(struct(*fields))


_TEXTS: Final = map_of(STRING)
_FS: Final = optional("fsType")
_READ_ONLY: Final = optional("readOnly", BOOL)
_SECRET: Final = optional("secretRef", _source(optional("name")))
_KEYS: Final = optional("items", list_of(struct(always("key"), always("path"), optional("mode", pointer(INT32)))))
_MODE: Final = optional("defaultMode", pointer(INT32))
_FILES: Final = optional(
    "items",
    list_of(
        struct(
            always("path"),
            optional("fieldRef", _source(optional("apiVersion"), always("fieldPath"))),
            optional(
                "resourceFieldRef",
                _source(optional("containerName"), always("resource"), optional("divisor", QUANTITY)),
            ),
            optional("mode", pointer(INT32)),
        )
    ),
)
_PROJECTION: Final = struct(
    optional("secret", _source(optional("name"), _KEYS, _OPTIONAL)),
    optional("downwardAPI", _source(_FILES)),
    optional("configMap", _source(optional("name"), _KEYS, _OPTIONAL)),
    optional(
        "serviceAccountToken",
        _source(optional("audience"), optional("expirationSeconds", pointer(INT64)), always("path")),
    ),
    optional(
        "clusterTrustBundle",
        _source(
            optional("name", pointer(STRING)),
            optional("signerName", pointer(STRING)),
            optional("labelSelector", pointer(LABEL_SELECTOR)),
            _OPTIONAL,
            always("path"),
        ),
    ),
)


#: A time that is never set in a template, and therefore always marshaled as null.
NO_TIME: Final = GoType(lambda _value, _path: None, lambda: None, lambda _: False)
CLAIM_SPEC: Final = struct(
    optional("accessModes", _STRINGS),
    optional("selector", pointer(LABEL_SELECTOR)),
    optional("resources", struct(optional("limits", map_of(QUANTITY)), optional("requests", map_of(QUANTITY)))),
    optional("volumeName"),
    optional("storageClassName", pointer(STRING)),
    optional("volumeMode", pointer(STRING)),
    optional("dataSource", _source(always("apiGroup", pointer(STRING)), always("kind"), always("name"))),
    optional(
        "dataSourceRef",
        _source(
            always("apiGroup", pointer(STRING)),
            always("kind"),
            always("name"),
            optional("namespace", pointer(STRING)),
        ),
    ),
    optional("volumeAttributesClassName", pointer(STRING)),
)
_CLAIM_TEMPLATE: Final = _source(
    optional(
        "metadata",
        struct(
            optional("name"),
            optional("namespace"),
            always("creationTimestamp", NO_TIME),
            optional("labels", _TEXTS),
            optional("annotations", _TEXTS),
        ),
    ),
    always("spec", CLAIM_SPEC),
)
VOLUME_SOURCES: Final[Mapping[str, GoType]] = {
    "hostPath": _source(always("path"), optional("type", pointer(STRING))),
    "emptyDir": _source(optional("medium"), optional("sizeLimit", pointer(QUANTITY))),
    "gcePersistentDisk": _source(always("pdName"), _FS, optional("partition", INT32), _READ_ONLY),
    "awsElasticBlockStore": _source(always("volumeID"), _FS, optional("partition", INT32), _READ_ONLY),
    "gitRepo": _source(always("repository"), optional("revision"), optional("directory")),
    "secret": _source(optional("secretName"), _KEYS, _MODE, _OPTIONAL),
    "nfs": _source(always("server"), always("path"), _READ_ONLY),
    "iscsi": _source(
        always("targetPortal"),
        always("iqn"),
        always("lun", INT32),
        optional("iscsiInterface"),
        _FS,
        _READ_ONLY,
        optional("portals", _STRINGS),
        optional("chapAuthDiscovery", BOOL),
        optional("chapAuthSession", BOOL),
        _SECRET,
        optional("initiatorName", pointer(STRING)),
    ),
    "glusterfs": _source(always("endpoints"), always("path"), _READ_ONLY),
    "persistentVolumeClaim": _source(always("claimName"), _READ_ONLY),
    "rbd": _source(
        always("monitors", _STRINGS),
        always("image"),
        _FS,
        optional("pool"),
        optional("user"),
        optional("keyring"),
        _SECRET,
        _READ_ONLY,
    ),
    "flexVolume": _source(always("driver"), _FS, _SECRET, _READ_ONLY, optional("options", _TEXTS)),
    "cinder": _source(always("volumeID"), _FS, _READ_ONLY, _SECRET),
    "cephfs": _source(
        always("monitors", _STRINGS), optional("path"), optional("user"), optional("secretFile"), _SECRET, _READ_ONLY
    ),
    "flocker": _source(optional("datasetName"), optional("datasetUUID")),
    "downwardAPI": _source(_FILES, _MODE),
    "fc": _source(
        optional("targetWWNs", _STRINGS), optional("lun", pointer(INT32)), _FS, _READ_ONLY, optional("wwids", _STRINGS)
    ),
    "azureFile": _source(always("secretName"), always("shareName"), _READ_ONLY),
    "configMap": _source(optional("name"), _KEYS, _MODE, _OPTIONAL),
    "vsphereVolume": _source(always("volumePath"), _FS, optional("storagePolicyName"), optional("storagePolicyID")),
    "quobyte": _source(
        always("registry"), always("volume"), _READ_ONLY, optional("user"), optional("group"), optional("tenant")
    ),
    "azureDisk": _source(
        always("diskName"),
        always("diskURI"),
        optional("cachingMode", pointer(STRING)),
        optional("fsType", pointer(STRING)),
        optional("readOnly", pointer(BOOL)),
        optional("kind", pointer(STRING)),
    ),
    "photonPersistentDisk": _source(always("pdID"), _FS),
    "projected": _source(always("sources", list_of(_PROJECTION)), _MODE),
    "portworxVolume": _source(always("volumeID"), _FS, _READ_ONLY),
    "scaleIO": _source(
        always("gateway"),
        always("system"),
        always("secretRef", _source(optional("name"))),
        optional("sslEnabled", BOOL),
        optional("protectionDomain"),
        optional("storagePool"),
        optional("storageMode"),
        optional("volumeName"),
        _FS,
        _READ_ONLY,
    ),
    "storageos": _source(optional("volumeName"), optional("volumeNamespace"), _FS, _READ_ONLY, _SECRET),
    "csi": _source(
        always("driver"),
        optional("readOnly", pointer(BOOL)),
        optional("fsType", pointer(STRING)),
        optional("volumeAttributes", _TEXTS),
        optional("nodePublishSecretRef", _source(optional("name"))),
    ),
    "ephemeral": _source(optional("volumeClaimTemplate", _CLAIM_TEMPLATE)),
    "image": _source(optional("reference"), optional("pullPolicy")),
}
VOLUME: Final = struct(always("name"), *(optional(name, go_type) for name, go_type in VOLUME_SOURCES.items()))
