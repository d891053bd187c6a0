"""Admission types of the Kubernetes API: the request (Review), the response (Decision) and the endpoint (Webhook).

A feature declares a :class:`Webhook` once, as data; routes, webhook configurations, RBAC and the reference page are
derived from it. ``Handler`` pairs a declaration with its decision function.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

import msgspec


class Operation(StrEnum):
    """Operations that an admission rule can match."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


@dataclass(frozen=True, slots=True)
class GroupVersionKind:
    """Group, version and kind in an admission review. The core group is the empty string."""

    group: str
    version: str
    kind: str


@dataclass(frozen=True, slots=True)
class GroupVersionResource:
    """Group, version and resource (plural, lower case) in an admission review."""

    group: str
    version: str
    resource: str


class Review(msgspec.Struct, frozen=True):
    """One AdmissionReview v1 request.

    ``object`` and ``old_object`` are raw JSON and must not be changed. For kinds other than Pods, managedFields are
    removed. ``user`` is the raw userInfo; only the types of its username and groups have been checked.
    """

    uid: str
    operation: Operation
    kind: GroupVersionKind
    resource: GroupVersionResource
    name: str = ""
    namespace: str = ""
    subresource: str = ""
    dry_run: bool = False
    username: str = ""
    groups: tuple[str, ...] = ()
    object: Mapping[str, Any] | None = None
    old_object: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = {}
    user: Mapping[str, Any] = {}


class PatchOperation(msgspec.Struct, frozen=True):
    """One RFC 6902 operation (``value`` is ignored for remove) and the rule that caused it."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: Any = None
    rule: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the operation as it appears in a JSON patch, without the rule."""
        if self.op == "remove":
            return {"op": "remove", "path": self.path}
        return {"op": self.op, "path": self.path, "value": self.value}


class Allowed(msgspec.Struct, frozen=True):
    """The request is allowed unchanged."""

    warnings: tuple[str, ...] = ()


class Patched(msgspec.Struct, frozen=True):
    """The request is allowed with these changes (at least one)."""

    operations: tuple[PatchOperation, ...]
    warnings: tuple[str, ...] = ()


class Denied(msgspec.Struct, frozen=True):
    """The request is denied. ``message`` is what kubectl prints after ``denied the request:``."""

    message: str
    code: int = 403
    reason: str = ""


Decision: TypeAlias = Allowed | Patched | Denied
Decide: TypeAlias = Callable[[Review], Decision | Awaitable[Decision]]


@dataclass(frozen=True, slots=True)
class Rule:
    """Requests that are sent to a webhook. ``resources`` entries are ``plural`` or ``plural/subresource``."""

    operations: tuple[Operation, ...]
    groups: tuple[str, ...]
    versions: tuple[str, ...]
    resources: tuple[str, ...]
    scope: Literal["*", "Namespaced", "Cluster"] = "*"

    def matches(self, review: Review) -> bool:
        """Return whether the API server would send this review because of this rule."""
        wanted = f"{review.resource.resource}/{review.subresource}" if review.subresource else review.resource.resource
        return (
            review.operation in self.operations
            and review.resource.group in self.groups
            and review.resource.version in self.versions
            and wanted in self.resources
        )


@dataclass(frozen=True, slots=True)
class MatchCondition:
    """A CEL expression that must be true before the API server calls the webhook."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One RBAC rule that a declaration needs."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...] = ()
    #: If true, the rule applies only in the manager's own namespace (a Role, not a ClusterRole).
    own_namespace: bool = False
    #: If set, the only namespace in which the rule applies.
    namespace: str = ""
    #: Whether reviews need the rule. If so, replicas that only serve reviews get it too. Not set for a webhook's
    #: permissions, which reviews always need.
    for_reviews: bool = False
    #: The optional role that contains this rule. Users bind it where they need it.
    optional: str = ""


@dataclass(frozen=True, slots=True)
class Webhook:
    """One entry of a webhook configuration, declared once. Selectors are JSON LabelSelectors.

    ``gate`` is the feature gate that must be enabled for the entry to be served. ``permissions`` lists the API access
    that ``decide`` needs.
    """

    name: str
    path: str
    mutating: bool
    rules: tuple[Rule, ...]
    summary: str
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    timeout_seconds: int = 10
    side_effects: Literal["None", "NoneOnDryRun"] = "None"
    namespace_selector: Mapping[str, Any] | None = None
    object_selector: Mapping[str, Any] | None = None
    match_conditions: tuple[MatchCondition, ...] = ()
    gate: str = ""
    #: If not empty, at least one of these gates must be enabled too.
    gates: tuple[str, ...] = ()
    #: Whether to allow requests at this path for a resource or version that no rule names; otherwise they are denied.
    unknown_passes: bool = False
    permissions: tuple[PolicyRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Handler:
    """A declaration and its decision function. Several handlers may share a path; the one with a matching rule is
    called."""

    webhook: Webhook
    decide: Decide
    #: Whether the decision is slow even though the review is small.
    is_slow: Callable[[Review], bool] = lambda _: False


#: The address of the webhook caller, if it is not known to be an API server. The webhook server sets it in the task
#: that serves the request. Empty for known callers and outside of requests (controllers, standalone mode).
STRANGER: Final[ContextVar[str]] = ContextVar("stranger", default="")
#: The namespace of the current review. The webhook server sets it too.
NAMESPACE: Final[ContextVar[str]] = ContextVar("namespace", default="")
#: Whether the current review must have no side effects, as in a dry run. Set if the caller is unknown and known callers
#: were active recently.
LEAVES_NO_TRACE: Final[ContextVar[bool]] = ContextVar("leaves_no_trace", default=False)
