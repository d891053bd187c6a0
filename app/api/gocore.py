"""The core Container of Kubernetes and all types within it, as Go reads and prints them (SS-12, SS-13).

One table per type, in the order of the Go struct as of Kubernetes 1.34. OpenKruise hashes containers in this order,
so a line must never move. ``restartPolicyRules``, which is newer than the order that existing hashes were made with,
is appended: a field that nobody used before changes no hash wherever it stands, but its place must stay fixed from
now on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def optional(name: str, go_type: GoType = STRING) -> GoField:
    """A field whose JSON tag says omitempty."""
    return GoField(name, go_type)


def always(name: str, go_type: GoType = STRING) -> GoField:
    """A field that is printed even when empty."""
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

#: The fields of Container, for types that hold one inline and add their own.
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
    """``container`` as Go prints it: known fields in Go's order, canonical quantities, empty fields left out.

    Raises :class:`app.api.gojson.GoTypeError`, with ``path`` in front, for a value of another type than the field's.
    """
    printed: dict[str, Any] = go_value(CONTAINER, container, path)
    return printed
