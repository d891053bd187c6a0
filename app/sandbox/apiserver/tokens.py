"""Tokens of service accounts: they name the account, and the server believes them. Nothing is signed or verified."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any, Final, TypeAlias

import orjson

from app.kube.clock import rfc3339
from app.kube.fielderrors import invalid
from app.sandbox.apiserver import status
from app.sandbox.apiserver.core import Core
from app.sandbox.apiserver.requests import Call, User

Json: TypeAlias = dict[str, Any]

_SECONDS: Final = 3600
_LEAST: Final = 600
_PREFIX: Final = "system:serviceaccount:"


def service_account_token(core: Core, call: Call, obj: Json) -> Json:
    """The answer to a TokenRequest. Refuses where the account is not there."""
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
    """Who a bearer token says its holder is: a service account, else a user of that name."""
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
