"""Errors from requests to a Kubernetes API server, in one small hierarchy.

``KubeError`` ← ``ConfigError`` (no usable configuration), ``TransportError`` (no response), ``DecodeError`` (an
unexpected response), ``ApiError`` (the server returned a failure ``Status``; one subclass per reason).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The HTTP verb and the path with its query, for messages."""

    verb: str
    path: str

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


class StatusCause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cause of a failure. ``field`` is the path in the object."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The object a ``Status`` refers to, and details of the failure."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """``metav1.Status``: the body of every failed response."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class KubeError(Exception):
    """Base class of all errors from requests to the API server."""

    #: Minimum seconds before a failed reconcile is retried. If 0, only the back-off determines the delay.
    retry_in: float = 0.0


class ConfigError(KubeError):
    """No usable configuration. The message names the file and the fix."""


class TransportError(KubeError):
    """The request got no response: the connection was refused, was reset or timed out, or TLS failed."""

    def __init__(self, request: RequestInfo, message: str) -> None:
        super().__init__(f"{request}: {message}")
        self.request = request
        self.message = message


class DecodeError(KubeError):
    """The response is not JSON, or not of the expected type."""

    def __init__(self, request: RequestInfo, message: str) -> None:
        super().__init__(f"{request}: cannot decode the response: {message}")
        self.request = request


class ApiError(KubeError):
    """The API server refused the request."""

    def __init__(self, request: RequestInfo, status: Status, retry_after: float | None = None) -> None:
        super().__init__(f"{request}: {status.message or 'no message'} ({status.reason or 'Unknown'}, {status.code})")
        self.request = request
        self.status = status
        #: Seconds from the Retry-After header; None if there is none.
        self.retry_after = retry_after

    @property
    def code(self) -> int:
        return self.status.code

    @property
    def reason(self) -> str:
        """The machine-readable reason, such as ``NotFound``; may be empty."""
        return self.status.reason

    @property
    def message(self) -> str:
        """The text that ``kubectl`` prints after ``Error from server``."""
        return self.status.message

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """The individual causes, for example one per invalid field."""
        return (self.status.details.causes or ()) if self.status.details else ()


class BadRequest(ApiError):
    """400: the server cannot understand the request."""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: refused by RBAC, an admission webhook or a quota."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class AlreadyExists(ApiError):
    """409: an object of the same name already exists."""


class Conflict(ApiError):
    """409: the object has changed since it was read, or a precondition does not hold. Also 422 for a patch whose uid
    differs: the name belongs to another object."""


class Gone(ApiError):
    """410: the resourceVersion or continue token has expired; relist."""


class Invalid(ApiError):
    """422: the object is invalid; see ``causes``."""


class TooManyRequests(ApiError):
    """429: the server is overloaded, or a disruption budget does not allow an eviction now."""


class ServerError(ApiError):
    """5xx: the server, or a webhook it calls, failed."""


_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Expired": Gone,
    "Gone": Gone,
    "NotFound": NotFound,
    "Forbidden": Forbidden,
    "Unauthorized": Unauthorized,
    "Invalid": Invalid,
    "BadRequest": BadRequest,
    "TooManyRequests": TooManyRequests,
}
_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}

_decode_status = msgspec.json.Decoder(Status).decode
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def api_error(request: RequestInfo, code: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error for a failed response. A body that is not a ``Status`` (such as a proxy's error page) is
    shortened and becomes the message.

    ``retry_after`` is the Retry-After header, if any. Only a number of seconds is recognized, the form that API servers
    send.
    """
    try:
        status = _decode_status(body)
    except _UNREADABLE:
        status = Status()
    if status.kind != "Status":
        text = body[:300].decode("utf-8", "replace").strip()
        status = Status(kind="Status", status="Failure", message=text or f"HTTP {code}", code=code)
    return status_error(request, status if status.code else msgspec.structs.replace(status, code=code), retry_after)


def status_error(request: RequestInfo, status: Status, retry_after: str | None = None) -> ApiError:
    """Return the error for a parsed ``Status`` (a watch sends them as ERROR events)."""
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code)
    causes = status.details.causes if status.details is not None else None
    if kind is Invalid and any(cause.field == "metadata.uid" for cause in causes or ()):
        # The uid in a patch is a precondition, which failed: the name now belongs to another object. If the uid of a
        # deletion differs, the code is 409.
        kind = Conflict
    if kind is None:
        kind = ServerError if status.code >= 500 else ApiError
    seconds = float(retry_after) if retry_after is not None and retry_after.strip().isdigit() else None
    return kind(request, status, seconds)


def describe(kind: str, namespace: str | None, name: str) -> str:
    """Return an object's name for messages: ``Pod default/web-0``, or ``Node worker-1`` if it is cluster-scoped."""
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


#: After these errors it is unknown whether the request was executed.
UNANSWERED: Final = (TransportError, ServerError)


def is_namespace_ending(error: KubeError) -> bool:
    """Return whether a create failed because its namespace is terminating, in which case retrying is pointless."""
    return isinstance(error, Forbidden) and any(cause.reason == "NamespaceTerminating" for cause in error.causes)


def message_of(error: KubeError | TimeoutError) -> str:
    """Return the message for events and conditions: only the API server's text, as Go clients print it.

    The request belongs in logs. Without a response, the message is the text of the error itself.
    """
    return (error.message if isinstance(error, ApiError) else "") or str(error)


def read_status(body: Any) -> Status:
    """Parse a ``Status`` from JSON bytes or a raw part of a larger message."""
    try:
        return _decode_status(body)
    except _UNREADABLE as error:
        return Status(kind="Status", status="Failure", message=f"unreadable Status: {error}")


class CommandError(Exception):
    """A command cannot do what the user requested. The message says what to do instead."""

    exit_code = 1


class WrongCommandError(CommandError):
    """The command line, or a file it names, is invalid."""

    exit_code = 2


class InterruptedCommandError(CommandError):
    """The user interrupted the command. The message says what remains and how to continue."""

    exit_code = 130


def sentence(error: BaseException) -> str:
    """Return a message for the user: the API server's text as kubectl prints it, without the request."""
    if isinstance(error, TransportError):
        return error.message
    if not isinstance(error, ApiError):
        return str(error)
    if isinstance(error, NotFound) and not (error.status.details and error.status.details.name):
        return f"the API server does not serve {error.request.path.partition('?')[0]}: is the kind installed?"
    if isinstance(error, Unauthorized):
        return f"the API server rejected the credentials of the kubeconfig ({error.message or 'Unauthorized'})"
    return f"refused: {error.message}" if error.message else str(error)
