"""What is posted and answered without being kept: access reviews (everybody may do everything) and token reviews."""

from __future__ import annotations

from typing import Any, TypeAlias

from app.kube.fielderrors import FieldError, GoLiteral, invalid
from app.sandbox.apiserver import status
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.requests import Call, User

Json: TypeAlias = dict[str, Any]

_EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
_ALL_PATHS = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]


def _check(resource: ResourceType, obj: Json) -> None:
    spec = obj.get("spec") or {}
    path, of = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
    errors: list[FieldError] = []
    if path is not None and of is not None:
        shown = {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
        message = "cannot be specified in combination with resourceAttributes"
        errors.append(invalid("spec.nonResourceAttributes", shown, message))
    elif path is None and of is None:
        message = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(invalid("spec.resourceAttributes", GoLiteral("null"), message))
    if not resource.plural.startswith("self") and not spec.get("user") and not spec.get("groups"):
        errors.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    namespace = obj.get("metadata", {}).get("namespace")
    if namespace and of is not None and of.get("namespace") != namespace:
        message = "must match metadata.namespace"
        errors.append(invalid("spec.resourceAttributes.namespace", of.get("namespace") or "", message))
    if errors:
        raise status.invalid_kind(resource.group, "", "", errors)


def review(call: Call, obj: Json) -> Json | None:
    """The posted object with its status; None for a kind that is no review."""
    resource = call.resource
    found = {**obj, "kind": resource.kind, "apiVersion": resource.api_version}
    found.setdefault("metadata", {})
    if resource.plural.endswith("accessreviews"):
        _check(resource, obj)
    match resource.plural:
        case "selfsubjectaccessreviews" | "subjectaccessreviews" | "localsubjectaccessreviews":
            found["status"] = {"allowed": True, "reason": "the sandbox allows everything"}
        case "selfsubjectrulesreviews":
            found["status"] = {"resourceRules": _EVERYTHING, "nonResourceRules": _ALL_PATHS, "incomplete": False}
        case "selfsubjectreviews":
            found["status"] = {"userInfo": call.user.as_json()}
        case "tokenreviews":
            token = (obj.get("spec") or {}).get("token") or ""
            user = User(token, ("system:authenticated",))
            found["status"] = {"authenticated": bool(token), "user": user.as_json() if token else {}}
        case _:
            return None
    return found
