"""Error responses: ``metav1.Status`` with the messages, reasons and codes of a Kubernetes API server.

Each function builds the exception for one reason, like apimachinery's ``errors`` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from app.kube.fielderrors import FieldError, aggregate, quote
from app.sandbox.apiserver.kinds import ResourceType

MODIFIED_MESSAGE = "the object has been modified; please apply your changes to the latest version and try again"


class Refusal(Exception):
    """An error response, usually a failed ``Status``."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        #: Whether ``details`` is sent even if empty, as in a few responses.
        self.shows_details = details is not None
        #: Plain text to send instead of a ``Status``.
        self.text: str | None = None
        #: Token with which to continue a list whose token has expired.
        self.continue_token = ""

    def as_json(self) -> dict[str, Any]:
        """Return the ``Status`` object."""
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
        """Return the ``Status`` as JSON."""
        return orjson.dumps(self.as_json()) + b"\n"


def _details(resource: ResourceType, name: str) -> dict[str, Any]:
    found = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in found.items() if value}


def not_found(resource: ResourceType, name: str) -> Refusal:
    """The object does not exist."""
    return Refusal(404, "NotFound", f"{resource.qualified} {quote(name)} not found", _details(resource, name))


def no_such_path() -> Refusal:
    """The path is not served."""
    return Refusal(404, "NotFound", "the server could not find the requested resource", {})


def page_not_found() -> Refusal:
    """The group is not served. The response is plain text."""
    refusal = no_such_path()
    refusal.text = "404 page not found\n"
    return refusal


def already_exists(resource: ResourceType, name: str, *, deleting: bool = False) -> Refusal:
    """An object with this name already exists."""
    message = f"{resource.qualified} {quote(name)} already exists"
    if deleting:
        message = f"object is being deleted: {message}"
    return Refusal(409, "AlreadyExists", message, _details(resource, name))


def no_free_name(resource: ResourceType, name: str) -> Refusal:
    """All generated names are taken."""
    message = f"{resource.qualified} {quote(name)} already exists, the server was not able to generate a unique name"
    details = {**_details(resource, name), "retryAfterSeconds": 1}
    return Refusal(409, "AlreadyExists", f"{message} for the object", details)


def conflict(resource: ResourceType, name: str, why: str = MODIFIED_MESSAGE) -> Refusal:
    """The object has changed, or does not meet a precondition."""
    message = f"Operation cannot be fulfilled on {resource.qualified} {quote(name)}: {why}"
    return Refusal(409, "Conflict", message, _details(resource, name))


def uid_conflict(resource: ResourceType, key: str, asked: str, found: str) -> Refusal:
    """The object under this key does not have the UID of the precondition."""
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{resource.key}/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
    )
    return conflict(resource, key.rpartition("/")[2], why)


def invalid(resource: ResourceType, name: str, errors: Sequence[FieldError], *, kind: str = "") -> Refusal:
    """The object is invalid."""
    return invalid_kind(resource.group, kind or resource.kind, name, errors)


def invalid_kind(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> Refusal:
    """Return the error for an invalid posted document, whether or not it is a stored object."""
    qualified = f"{kind}.{group}" if group else kind
    details = {"name": name, "group": group, "kind": kind, "causes": [error.as_cause() for error in errors]}
    details = {key: value for key, value in details.items() if value}
    told = f": {aggregate(errors)}" if errors else ""
    return Refusal(422, "Invalid", f"{qualified} {quote(name)} is invalid{told}", details)


def bad_request(message: str) -> Refusal:
    """The request is malformed."""
    return Refusal(400, "BadRequest", message)


def name_mismatch(name: str, named: str) -> Refusal:
    """The object's name is not ``named``, the one in the URL."""
    if not name:
        return bad_request(f"the name of the object ({named} based on URL) was undeterminable: name must be provided")
    return bad_request(f"the name of the object ({name}) does not match the name on the URL ({named})")


def namespace_mismatch() -> Refusal:
    """The object's namespace is not the one in the URL."""
    return bad_request("the namespace of the provided object does not match the namespace sent on the request")


def patch_failed(details: dict[str, Any] | None = None) -> Refusal:
    """A JSON patch does not apply. Like a real server, this does not report the cause."""
    return Refusal(422, "Invalid", "the server rejected our request due to an error in our request", details)


def forbidden(resource: ResourceType, name: str, why: str) -> Refusal:
    """Admission rejects the request."""
    named = f"{resource.qualified} {quote(name)}" if name else resource.qualified
    return Refusal(403, "Forbidden", f"{named} is forbidden: {why}", _details(resource, name))


def method_not_allowed() -> Refusal:
    """The path does not support this method."""
    return Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_supported(resource: ResourceType, action: str) -> Refusal:
    """The resource does not support this action."""
    details = _details(resource, "")
    message = f"{action} is not supported on resources of kind {quote(resource.qualified)}"
    return Refusal(405, "MethodNotAllowed", message, details)


def expired(message: str) -> Refusal:
    """The requested version is no longer available."""
    return Refusal(410, "Expired", message)


def too_large_version(asked: int, current: int) -> Refusal:
    """The requested version does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return Refusal(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def too_many_requests(message: str, retry_after: int, details: dict[str, Any] | None = None) -> Refusal:
    """The request must be retried later."""
    found = dict(details or {})
    if retry_after:
        found["retryAfterSeconds"] = retry_after
    return Refusal(429, "TooManyRequests", message, found)


def internal(message: str) -> Refusal:
    """The server, or a webhook it calls, has failed."""
    return Refusal(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})


def plain_error(message: str) -> Refusal:
    """An error without a reason code."""
    return Refusal(500, "", message)


def not_available(accepted: Sequence[str]) -> Refusal:
    """The server supports none of the encodings that the client accepts."""
    shown = ", ".join(accepted)
    message = f"406: Not Acceptable\n\nAvailable representations: {shown}"
    return Refusal(406, "NotAcceptable", message, {})


def wrong_form(message: str) -> Refusal:
    """The object cannot be shown in the requested form."""
    return Refusal(406, "NotAcceptable", message)


def not_acceptable(accepted: Sequence[str]) -> Refusal:
    """The server supports none of the content types that the client accepts."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return Refusal(406, "NotAcceptable", message)


def unsupported_media_type(known: Sequence[str]) -> Refusal:
    """The body's content type is not supported."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(known)}"
    return Refusal(415, "UnsupportedMediaType", message)


def not_implemented(what: str) -> Refusal:
    """The sandbox does not implement this; see docs/sandbox.md."""
    return Refusal(501, "NotImplemented", f"not implemented by the sandbox's API server: {what}")


def success(resource: ResourceType, name: str, uid: str) -> dict[str, Any]:
    """Return the ``Status`` of a completed deletion."""
    details = {**_details(resource, name), "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
