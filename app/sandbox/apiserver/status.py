"""Refusals: ``metav1.Status`` with the words, reasons and codes of a Kubernetes API server.

Each function builds the exception for one reason, as apimachinery's ``errors`` package does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from app.kube.fielderrors import FieldError, aggregate, quote
from app.sandbox.apiserver.kinds import ResourceType

MODIFIED_MESSAGE = "the object has been modified; please apply your changes to the latest version and try again"


class Refusal(Exception):
    """A request that is answered with a failed ``Status``."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        #: A few refusals say details although there are none.
        self.shows_details = details is not None
        #: What is answered instead of a ``Status``.
        self.text: str | None = None
        #: Listing may go on from here although its token has expired.
        self.continue_token = ""

    def as_json(self) -> dict[str, Any]:
        """The ``Status`` object."""
        metadata = {"continue": self.continue_token} if self.continue_token else {}
        found: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            found["reason"] = self.reason
        if self.shows_details:
            found["details"] = self.details
        found["code"] = self.code
        return found

    def body(self) -> bytes:
        """The ``Status`` as JSON."""
        return orjson.dumps(self.as_json()) + b"\n"


def _details(resource: ResourceType, name: str) -> dict[str, Any]:
    found = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in found.items() if value}


def not_found(resource: ResourceType, name: str) -> Refusal:
    """No such object."""
    return Refusal(404, "NotFound", f"{resource.qualified} {quote(name)} not found", _details(resource, name))


def no_such_path() -> Refusal:
    """Nothing is served there."""
    return Refusal(404, "NotFound", "the server could not find the requested resource", {})


def page_not_found() -> Refusal:
    """Not even the group is served: the answer is no ``Status``."""
    refusal = no_such_path()
    refusal.text = "404 page not found\n"
    return refusal


def already_exists(resource: ResourceType, name: str, *, deleting: bool = False) -> Refusal:
    """A create met an object of that name."""
    message = f"{resource.qualified} {quote(name)} already exists"
    if deleting:
        message = f"object is being deleted: {message}"
    return Refusal(409, "AlreadyExists", message, _details(resource, name))


def no_free_name(resource: ResourceType, name: str) -> Refusal:
    """All generated names were taken."""
    message = f"{resource.qualified} {quote(name)} already exists, the server was not able to generate a unique name"
    details = {**_details(resource, name), "retryAfterSeconds": 1}
    return Refusal(409, "AlreadyExists", f"{message} for the object", details)


def conflict(resource: ResourceType, name: str, why: str = MODIFIED_MESSAGE) -> Refusal:
    """The object is not (any more) what the request counts on."""
    message = f"Operation cannot be fulfilled on {resource.qualified} {quote(name)}: {why}"
    return Refusal(409, "Conflict", message, _details(resource, name))


def invalid(resource: ResourceType, name: str, errors: Sequence[FieldError], *, kind: str = "") -> Refusal:
    """The object does not validate."""
    return invalid_kind(resource.group, kind or resource.kind, name, errors)


def invalid_kind(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> Refusal:
    """What was sent does not validate; it need not be an object of a resource."""
    qualified = f"{kind}.{group}" if group else kind
    details = {"name": name, "group": group, "kind": kind, "causes": [error.as_cause() for error in errors]}
    details = {key: value for key, value in details.items() if value}
    told = f": {aggregate(errors)}" if errors else ""
    return Refusal(422, "Invalid", f"{qualified} {quote(name)} is invalid{told}", details)


def bad_request(message: str) -> Refusal:
    """The request makes no sense."""
    return Refusal(400, "BadRequest", message)


def forbidden(resource: ResourceType, name: str, why: str) -> Refusal:
    """Admission refuses."""
    named = f"{resource.qualified} {quote(name)}" if name else resource.qualified
    return Refusal(403, "Forbidden", f"{named} is forbidden: {why}", _details(resource, name))


def method_not_allowed() -> Refusal:
    """The path is served, but not with this verb."""
    return Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_supported(resource: ResourceType, action: str) -> Refusal:
    """The resource lacks this action."""
    details = _details(resource, "")
    message = f"{action} is not supported on resources of kind {quote(resource.qualified)}"
    return Refusal(405, "MethodNotAllowed", message, details)


def expired(message: str) -> Refusal:
    """The version asked for is known no more."""
    return Refusal(410, "Expired", message)


def too_large_version(asked: int, current: int) -> Refusal:
    """The version asked for does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return Refusal(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def too_many_requests(message: str, retry_after: int, details: dict[str, Any] | None = None) -> Refusal:
    """Not now."""
    found = dict(details or {})
    if retry_after:
        found["retryAfterSeconds"] = retry_after
    return Refusal(429, "TooManyRequests", message, found)


def internal(message: str) -> Refusal:
    """The server, or a webhook it calls, failed."""
    return Refusal(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})


def plain_error(message: str) -> Refusal:
    """A failure for which the server has no reason word."""
    return Refusal(500, "", message)


def not_available(accepted: Sequence[str]) -> Refusal:
    """The client accepts no encoding that the server has."""
    shown = ", ".join(accepted)
    message = f"406: Not Acceptable\n\nAvailable representations: {shown}"
    return Refusal(406, "NotAcceptable", message, {})


def wrong_form(message: str) -> Refusal:
    """The form the client asks for does not fit what it asks for."""
    return Refusal(406, "NotAcceptable", message)


def not_acceptable(accepted: Sequence[str]) -> Refusal:
    """None of the content types the client accepts is available."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return Refusal(406, "NotAcceptable", message)


def unsupported_media_type(known: Sequence[str]) -> Refusal:
    """The body's content type is not understood."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(known)}"
    return Refusal(415, "UnsupportedMediaType", message)


def not_implemented(what: str) -> Refusal:
    """The sandbox lacks this on purpose: see docs/sandbox.md."""
    return Refusal(501, "NotImplemented", f"the sandbox's API server does not do this: {what}")


def success(resource: ResourceType, name: str, uid: str) -> dict[str, Any]:
    """The ``Status`` that tells of a deletion that is complete."""
    details = {**_details(resource, name), "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
