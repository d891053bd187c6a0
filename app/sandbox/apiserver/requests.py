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

# Requests: from an HTTP method, a path and a query to a verb on a resource.
#
# Paths are those of every Kubernetes API server; what a query may say is read here, with the server's complaints.

FieldValidation: TypeAlias = Literal["Ignore", "Warn", "Strict"]

_FALSE: Final = frozenset({"false", "0"})
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class User:
    """Who asks. Everybody may do everything; webhooks are told the name."""

    name: str = "system:admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    uid: str = ""

    def as_json(self) -> dict[str, object]:
        """``authentication.k8s.io/v1 UserInfo``."""
        found: dict[str, object] = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            found["uid"] = self.uid
        return found


@dataclass(slots=True)
class Call:
    """One request, taken apart. ``headers`` has lower-case names."""

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
    #: What stands after the subresource (proxy).
    rest: str = ""
    verb: str = ""
    #: One of the objects a deletion of many is about: the request itself names none.
    of_many: bool = False
    #: Whether the client sees managed fields.
    managed: bool = True
    #: Shown to the client beside the answer.
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Where the object is stored in its collection."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be changed. Refuses values other than ``All``."""
        value = self.query.get("dryRun", "")
        if value not in ("", "All"):
            raise status.bad_request(f'Invalid value: []string{{"{value}"}}: unsupported dry run option')
        return bool(value)

    @property
    def field_manager(self) -> str:
        """Who is noted in managed fields: the query says, else the user agent's first word."""
        manager = self.query.get("fieldManager", "")
        return manager or self.headers.get("user-agent", "unknown").partition("/")[0][:128]

    @property
    def field_validation(self) -> FieldValidation:
        """What happens with fields nobody knows."""
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
        """A boolean of the query: whatever is not said, ``false`` or ``0`` is true."""
        return name in self.query and self.query[name].lower() not in _FALSE

    def number(self, name: str) -> int | None:
        """A whole number of the query."""
        value = self.query.get(name, "")
        if not value:
            return None
        if not _INTEGER.fullmatch(value):
            raise status.bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return int(value)

    @property
    def revision(self) -> int:
        """``resourceVersion`` of the query; 0 where it says nothing."""
        value = self.query.get("resourceVersion", "")
        if not value:
            return 0
        if not value.isdigit():
            raise status.bad_request(
                f'resourceVersion: Invalid value: "{value}": strconv.ParseUint: parsing "{value}": invalid syntax'
            )
        return int(value)


def route(call: Call, registry: Registry) -> bool:
    """Find resource and verb of an API path. False for paths outside ``/api/v1`` and ``/apis/<group>/<version>``.

    Raises ``Refusal`` where the path is one of a resource but not served.
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
    if watching:  # the old way to ask for a watch
        rest = rest[1:]
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] in ("status", "finalize")):
        call.namespace, rest = rest[1], rest[2:]
    resource = registry.find(group, version, rest[0])
    if resource is None and not any(served.group == group for served in registry.served()):
        raise status.page_not_found()
    # Custom resources' paths are answered by another handler.
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
    """Refuse a create, update or patch whose options are wrong."""
    kind = _KINDS.get(call.verb)
    if kind is None or not call.query.keys() & {"dryRun", "fieldManager", "fieldValidation", "force"}:
        if kind == "PatchOptions" and _is_apply(call):
            raise _refused(kind, [required("fieldManager", "is required for apply patch")])
        return
    errors = [*_patch_errors(call), *_manager_errors(call), *dry_run_errors(call.query.get("dryRun"))]
    validation = call.query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        errors.append(not_supported("fieldValidation", validation, _VALIDATIONS))
    if errors:
        raise _refused(kind, errors)


def dry_run_errors(value: Any) -> list[FieldError]:
    """What is wrong with the kinds of dry run a request names; ``All`` is the only one."""
    given = [value] if isinstance(value, str) and value else value or []
    if all(one == "All" for one in given):
        return []
    return [not_supported("dryRun", given, ("All",))]


def _is_apply(call: Call) -> bool:
    return call.headers.get("content-type", "").partition(";")[0].strip() == PatchType.APPLY


def _patch_errors(call: Call) -> list[FieldError]:
    if call.verb != "patch":
        return []
    if _is_apply(call):
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
