"""Service account tokens, and reviews of tokens and access."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any, Final, TypeAlias

import orjson

from app.kube.clock import rfc3339
from app.kube.fielderrors import FieldError, GoLiteral, invalid, quote
from app.sandbox.apiserver import status
from app.sandbox.apiserver.requests import Call, User
from app.sandbox.apiserver.storage import Core

Json: TypeAlias = dict[str, Any]

_SECONDS: Final = 3600
_LEAST: Final = 600
_PREFIX: Final = "system:serviceaccount:"


def service_account_token(core: Core, call: Call, obj: Json) -> Json:
    """Return the response to a TokenRequest. Rejects it if the service account does not exist."""
    account = core.entry(call)
    spec = dict(obj.get("spec") or {})
    seconds = spec.setdefault("expirationSeconds", _SECONDS)
    if seconds < _LEAST:
        message = "may not specify a duration less than 10 minutes"
        error = invalid("spec.expirationSeconds", seconds, message)
        raise status.invalid_kind("authentication.k8s.io", "TokenRequest", "", [error])
    spec.setdefault("audiences", ["https://kubernetes.default.svc"])
    now = core.clock.now()
    claims = {
        "aud": spec["audiences"],
        "exp": int(now.timestamp()) + seconds,
        "iat": int(now.timestamp()),
        "jti": core.new_uid(),
        "sub": f"{_PREFIX}{call.namespace}:{call.name}",
        "kubernetes.io": {
            "namespace": call.namespace,
            "serviceaccount": {"name": call.name, "uid": account.obj["metadata"]["uid"]},
        },
    }
    token = ".".join(_part(part) for part in ({"alg": "none", "typ": "JWT"}, claims)) + "."
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": call.name, "namespace": call.namespace, "creationTimestamp": core.now()},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": rfc3339(now + timedelta(seconds=seconds))},
    }


def _part(value: Json) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=").decode()


def user_of(token: str) -> User:
    """Return the user of a bearer token: a service account, or else a user whose name is the token."""
    parts = token.split(".")
    if len(parts) == 3:
        try:
            claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            subject = str(claims["sub"])
        except (ValueError, KeyError, TypeError):
            return User(token, ("system:authenticated",))
        if subject.startswith(_PREFIX):
            namespace = subject.removeprefix(_PREFIX).partition(":")[0]
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
            return User(subject, groups)
    return User(token, ("system:masters", "system:authenticated"))


_EVERYTHING: Final = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
_ALL_PATHS: Final = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
_ACCESS: Final = ("selfsubjectaccessreviews", "subjectaccessreviews", "localsubjectaccessreviews")


def review(call: Call, obj: Json) -> Json | None:
    """Return the posted review with its status, or None if the kind is not a review. Rejects invalid reviews."""
    resource = call.resource
    found = {**obj, "kind": resource.kind, "apiVersion": resource.api_version}
    found.setdefault("metadata", {})
    if resource.plural in _ACCESS:
        errors = _access_errors(call, found)
        if errors:
            # Errors for reviews omit the kind.
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
