"""What is posted and answered without being kept: access reviews (everybody may do everything) and token reviews."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from app.kube.fielderrors import FieldError, GoLiteral, invalid
from app.kube.gotext import quote
from app.sandbox.apiserver import status
from app.sandbox.apiserver.requests import Call, User

Json: TypeAlias = dict[str, Any]

_EVERYTHING: Final = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
_ALL_PATHS: Final = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
_ACCESS: Final = ("selfsubjectaccessreviews", "subjectaccessreviews", "localsubjectaccessreviews")


def review(call: Call, obj: Json) -> Json | None:
    """The posted object with its status; None for a kind that is no review. Refuses what makes no sense."""
    resource = call.resource
    found = {**obj, "kind": resource.kind, "apiVersion": resource.api_version}
    found.setdefault("metadata", {})
    if resource.plural in _ACCESS:
        errors = _access_errors(call, found)
        if errors:
            # The kind is left out of these refusals.
            raise status.invalid_kind(resource.group, "", "", errors)
        found["status"] = {"allowed": True, "reason": "the sandbox allows everything"}
        return found
    match resource.plural:
        case "selfsubjectrulesreviews":
            if not (found.get("spec") or {}).get("namespace"):
                raise status.bad_request("no namespace on request")
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


def _access_errors(call: Call, found: Json) -> list[FieldError]:
    """Source: Kubernetes 1.34, pkg/apis/authorization/validation."""
    spec = found.get("spec") or {}
    resources, paths = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    errors: list[FieldError] = []
    if resources is not None and paths is not None:
        shown = f'{{"Path":{quote(paths.get("path", ""))},"Verb":{quote(paths.get("verb", ""))}}}'
        detail = "cannot be specified in combination with resourceAttributes"
        errors.append(invalid("spec.nonResourceAttributes", GoLiteral(shown), detail))
    if resources is None and paths is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(invalid("spec.resourceAttributes", GoLiteral("null"), detail))
    plural = call.resource.plural
    if plural != "selfsubjectaccessreviews" and not spec.get("user") and not spec.get("groups"):
        errors.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    metadata = found["metadata"]
    allowed = {"namespace"} if plural == "localsubjectaccessreviews" else set()
    if metadata.keys() - allowed:
        errors.append(invalid("metadata", metadata, "must be empty"))
    if plural == "localsubjectaccessreviews":
        asked = (resources or {}).get("namespace", "")
        if resources is not None and asked != (metadata.get("namespace") or call.namespace):
            errors.append(invalid("spec.resourceAttributes.namespace", asked, "must match metadata.namespace"))
    return errors
