"""A request: its path, verb, options and user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote

from app.kube.client import PatchType
from app.kube.fielderrors import FieldError, forbidden, invalid, not_supported, required, too_long
from app.sandbox.apiserver import status
from app.sandbox.apiserver.kinds import Registry, ResourceType

# Maps HTTP method, path and query to a verb on a resource, with a real server's paths and errors.

FieldValidation: TypeAlias = Literal["Ignore", "Warn", "Strict"]

_FALSE: Final = frozenset({"false", "0"})
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request. All requests are authorized; webhooks receive the name."""

    name: str = "system:admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    uid: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the user as ``authentication.k8s.io/v1 UserInfo``."""
        found: dict[str, object] = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            found["uid"] = self.uid
        return found


@dataclass(slots=True)
class Call:
    """A parsed request. Names in ``headers`` are lower-case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    user: User
    resource: ResourceType = field(init=False)
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    #: The path after the subresource; used by proxy.
    rest: str = ""
    verb: str = ""
    #: Whether the call is part of the deletion of a collection, whose request names no object.
    of_many: bool = False
    #: Whether the client sees managed fields.
    managed: bool = True
    #: Warnings for the client, sent with the response.
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Return the object's key in its collection."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def dry_run(self) -> bool:
        """Return whether the request is a dry run. Rejects values other than ``All``."""
        value = self.query.get("dryRun", "")
        if value not in ("", "All"):
            raise status.bad_request(f'Invalid value: []string{{"{value}"}}: unsupported dry run option')
        return bool(value)

    @property
    def is_apply(self) -> bool:
        """Return whether the body is a server-side apply patch."""
        return self.headers.get("content-type", "").partition(";")[0].strip() == PatchType.APPLY

    @property
    def field_manager(self) -> str:
        """Return the field manager: the query parameter, or else the first part of the user agent."""
        manager = self.query.get("fieldManager", "")
        return manager or self.headers.get("user-agent", "unknown").partition("/")[0][:128]

    @property
    def field_validation(self) -> FieldValidation:
        """Return how to handle unknown fields."""
        value = self.query.get("fieldValidation", "")
        match value:
            case "" | "Warn":
                return "Warn"
            case "Ignore" | "Strict":
                return value
        known = "Ignore, Strict, Warn"
        raise status.Refusal(
            422,
            "Invalid",
            f'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "{value}": '
            f"supported values: {known}",
        )

    def flag(self, name: str) -> bool:
        """Return a boolean query parameter. It is false if missing, ``false`` or ``0``."""
        return name in self.query and self.query[name].lower() not in _FALSE

    def number(self, name: str) -> int | None:
        """Return an integer query parameter."""
        value = self.query.get(name, "")
        if not value:
            return None
        if not _INTEGER.fullmatch(value):
            raise status.bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return int(value)

    @property
    def revision(self) -> int:
        """Return the query's ``resourceVersion``, or 0."""
        value = self.query.get("resourceVersion", "")
        if not value:
            return 0
        if not value.isdigit():
            raise status.bad_request(
                f'resourceVersion: Invalid value: "{value}": strconv.ParseUint: parsing "{value}": invalid syntax'
            )
        return int(value)


def route(call: Call, registry: Registry) -> bool:
    """Find the resource and verb of an API path. Returns False for paths outside ``/api/v1`` and ``/apis/<group>``.

    Raises ``Refusal`` for resource paths that are not served.
    """
    parts = call.path.split("/")
    if parts[1:2] == ["api"] and len(parts) > 3:
        group, version, rest = "", parts[2], parts[3:]
    elif parts[1:2] == ["apis"] and len(parts) > 4:
        group, version, rest = parts[2], parts[3], parts[4:]
    else:
        return False
    if rest and not rest[-1]:
        rest = rest[:-1]
    if not rest:
        return False
    if "%" in call.path:
        rest = [unquote(part) for part in rest]
    watching = rest[0] == "watch" and len(rest) > 1
    if watching:  # the deprecated watch path
        rest = rest[1:]
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] in ("status", "finalize")):
        call.namespace, rest = rest[1], rest[2:]
    resource = registry.find(group, version, rest[0])
    if resource is None and not any(served.group == group for served in registry.served()):
        raise status.page_not_found()
    # On a real server, a different handler, with different errors, serves the paths of custom resources.
    if registry.is_custom(group) and (resource is None or bool(call.namespace) > resource.namespaced):
        raise status.page_not_found()
    if resource is None or (call.namespace and not resource.namespaced):
        raise status.no_such_path()
    call.resource = resource
    call.name = rest[1] if len(rest) > 1 else ""
    call.subresource = rest[2] if len(rest) > 2 else ""
    call.rest = "/".join(rest[3:])
    if call.name and resource.namespaced and not call.namespace:
        raise status.page_not_found() if resource.custom is not None else status.no_such_path()
    if call.subresource and call.subresource not in resource.subresources:
        raise status.no_such_path() if resource.custom is None else status.not_found(resource, call.name)
    if call.rest and call.subresource != "proxy":
        raise status.no_such_path()
    served = resource.served.subresource(call.subresource)
    if served is not None and _VERBS.get(call.method) not in served.verbs:
        raise status.method_not_allowed()
    call.verb = "watch" if watching and call.method == "GET" else _verb(call)
    return True


def _verb(call: Call) -> str:
    verb = _VERBS.get(call.method)
    if verb is None:
        raise status.method_not_allowed()
    if not call.name:
        if verb == "get":
            verb = "watch" if call.flag("watch") else "list"
        elif verb == "delete":
            verb = "deletecollection"
            if call.resource.namespaced and not call.namespace:
                raise status.method_not_allowed()
        elif verb != "create":
            raise status.method_not_allowed()
        if verb == "create" and call.resource.namespaced and not call.namespace:
            raise status.method_not_allowed()
    elif verb == "create" and not call.subresource:
        raise status.method_not_allowed()
    elif verb == "get" and not call.subresource and call.flag("watch"):
        verb = "watch"
    if not call.subresource and verb not in call.resource.verbs:
        raise status.method_not_allowed()
    return verb


_KINDS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_MANAGER_BYTES: Final = 128


def check_options(call: Call) -> None:
    """Reject a create, update or patch request with invalid options."""
    kind = _KINDS.get(call.verb)
    if kind is None or not call.query.keys() & {"dryRun", "fieldManager", "fieldValidation", "force"}:
        if kind == "PatchOptions" and call.is_apply:
            raise _refused(kind, [required("fieldManager", "is required for apply patch")])
        return
    errors = [*_patch_errors(call), *_manager_errors(call), *dry_run_errors(call.query.get("dryRun"))]
    validation = call.query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        errors.append(not_supported("fieldValidation", validation, _VALIDATIONS))
    if errors:
        raise _refused(kind, errors)


def dry_run_errors(value: Any) -> list[FieldError]:
    """Return an error for each dry-run directive other than ``All``."""
    given = [value] if isinstance(value, str) and value else value or []
    if all(one == "All" for one in given):
        return []
    return [not_supported("dryRun", given, ("All",))]


def _patch_errors(call: Call) -> list[FieldError]:
    if call.verb != "patch":
        return []
    if call.is_apply:
        missing = not call.query.get("fieldManager")
        return [required("fieldManager", "is required for apply patch")] if missing else []
    return [forbidden("force", "may not be specified for non-apply patch")] if "force" in call.query else []


def _manager_errors(call: Call) -> list[FieldError]:
    manager = call.query.get("fieldManager", "")
    errors = []
    if len(manager.encode()) > _MANAGER_BYTES:
        errors.append(too_long("fieldManager", _MANAGER_BYTES))
    for position, char in enumerate(manager):
        if not char.isprintable():
            detail = f"invalid character U+{ord(char):04X} (at position {position})"
            errors.append(invalid("fieldManager", manager, detail))
    return errors


def _refused(kind: str, errors: list[FieldError]) -> status.Refusal:
    return status.invalid_kind("meta.k8s.io", kind, "", errors)
