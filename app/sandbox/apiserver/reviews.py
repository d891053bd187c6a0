"""What is posted and answered without being kept: access reviews (everybody may do everything) and token reviews."""

from __future__ import annotations

from typing import Any, TypeAlias

from app.sandbox.apiserver.requests import Call, User

Json: TypeAlias = dict[str, Any]

_EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
_ALL_PATHS = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]


def review(call: Call, obj: Json) -> Json | None:
    """The posted object with its status; None for a kind that is no review."""
    resource = call.resource
    found = {**obj, "kind": resource.kind, "apiVersion": resource.api_version}
    metadata = found.setdefault("metadata", {})
    metadata.setdefault("creationTimestamp", None)
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
