"""Deletion reviews for the handlers of the shipped table, and lookups with fixed counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.admission.registry import build_registry
from app.features.deletionprotection.lookups import NamespaceContent
from app.features.deletionprotection.plan import Count, Gates
from app.features.deletionprotection.protected_kinds import ProtectedKind, load_table
from app.features.deletionprotection.webhooks import handlers
from app.kube.admission import Decision, Denied, GroupVersionKind, GroupVersionResource, Handler, Operation, Review
from app.kube.resources import Resource
from tests.admission.writing import decided

LABEL = "policy.kruise.io/delete-protection"
TABLE = load_table()
#: Kinds of features; their webhooks also validate writes.
OF_SLICES = tuple(kind for kind in TABLE if kind.group.endswith("kruise.io"))
#: By name; a native kind wins over ours.
KINDS = {kind.kind: kind for kind in (*OF_SLICES, *(kind for kind in TABLE if kind not in OF_SLICES))}
FORBIDDEN = f"forbidden by ResourcesProtectionDeletion for {LABEL}="
WIDGETS: dict[str, Any] = {
    "group": "example.com",
    "scope": "Namespaced",
    "names": {"plural": "widgets", "kind": "Widget", "listKind": "WidgetList"},
    "versions": [{"name": "v1alpha1", "storage": False}, {"name": "v1", "storage": True}],
}


def protected(kind: str, value: str | None = "Always", **more: Any) -> dict[str, Any]:
    """An object of a kind with the label, as ``oldObject`` carries it; ``metadata`` in ``more`` is added."""
    metadata: dict[str, Any] = {"name": "shop", **more.pop("metadata", {})}
    if KINDS[kind].namespaced:
        metadata["namespace"] = "web"
    if value is not None:
        metadata["labels"] = {LABEL: value}
    return {"kind": kind, "metadata": metadata, **more}


def deletion(kind: str, old: Mapping[str, Any] | None, **more: Any) -> Review:
    """The review of deleting ``old``, as the API server sends it (a Namespace is also its own namespace)."""
    row = KINDS[kind]
    given = {
        "uid": "1",
        "operation": Operation.DELETE,
        "kind": GroupVersionKind(row.group, row.versions[0], kind),
        "resource": GroupVersionResource(row.group, row.versions[0], row.resource),
        "name": "shop",
        "namespace": "web" if row.namespaced else "shop",
        "username": "jane",
        "old_object": old,
        **more,
    }
    return Review(**given)


@dataclass
class Cluster:
    """Fixed results or errors of the lookups; records each call."""

    pods: Count | Exception = Count(0)  # noqa: RUF009 - frozen
    claims: Count | Exception = Count(0)  # noqa: RUF009
    crs: Count | Exception = Count(0)  # noqa: RUF009
    #: Of the object to delete.
    live_uid: str | Exception = ""
    asked: list[Any] = field(default_factory=list)
    refusals: list[tuple[str, ...]] = field(default_factory=list)

    async def uid(self, resource: Resource, name: str) -> str:
        self.asked.append(("uid", resource.plural, name))
        if isinstance(self.live_uid, Exception):
            raise self.live_uid
        return self.live_uid

    async def contents(self, content: NamespaceContent, namespace: str) -> Count:
        pods = content.listed == "pods"
        return self._answer(("pods" if pods else "claims", namespace), self.pods if pods else self.claims)

    async def custom_resources(self, resource: Resource) -> Count:
        return self._answer(resource, self.crs)

    def _answer(self, question: Any, answer: Count | Exception) -> Count:
        self.asked.append(question)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def decide(self, review: Review, gates: Gates | None = None, table: tuple[ProtectedKind, ...] = TABLE) -> Decision:
        """What a manager that serves this table answers, found through its routes."""
        used = gates if gates is not None else Gates(crd_cascading=True)
        registry = build_registry(handlers(table, self, used, self._refused), lambda gate: used.enabled)
        row = next(kind for kind in table if kind.kind == review.kind.kind)
        handler = registry.routes[row.path].handler_for(review)
        return decided(handler, review) if isinstance(handler, Handler) else handler

    def _refused(self, *what: str) -> None:
        self.refusals.append(what)


def refusal(decision: Decision) -> str:
    """Return the message of a refusal; fail on any other decision."""
    assert isinstance(decision, Denied), decision
    assert (decision.code, decision.reason) == (403, "Forbidden")
    return decision.message
