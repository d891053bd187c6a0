"""Deletion protection webhooks and their handlers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from app.api import names
from app.features.deletionprotection.lookups import CONTENTS, DeletionLookups
from app.features.deletionprotection.plan import (
    Count,
    CustomResources,
    Gates,
    NamespaceContents,
    Protection,
    custom_resources_not_listed,
    judge,
    judge_count,
    judge_identity,
    label_warnings,
    not_identified,
    not_listed,
)
from app.features.deletionprotection.protected_kinds import Cascading, ProtectedKind, is_ours
from app.kube.admission import (
    Allowed,
    Decision,
    Denied,
    Handler,
    MatchCondition,
    Operation,
    PolicyRule,
    Review,
    Rule,
    Webhook,
)
from app.kube.errors import Forbidden, KubeError, message_of

#: Records a denial, given the object's kind, namespace ("" if cluster-scoped) and name, and the user. [DP-40, DP-41,
#: DP-55]
Refused: TypeAlias = Callable[[str, str, str, str], None]

GATE: Final = "ResourcesDeletionProtection"
#: Objects without the label are deleted without a webhook call. [DP-30]
LABELED: Final = {"matchExpressions": [{"key": names.DELETE_PROTECTION, "operator": "Exists"}]}
#: The same condition for webhooks that also handle other operations. [DP-30]
_DELETED_WITH_LABEL: Final = (
    MatchCondition(
        "deleted-with-label",
        "request.operation != 'DELETE' || (has(oldObject.metadata.labels) && "
        f"'{names.DELETE_PROTECTION}' in oldObject.metadata.labels) || "
        # A conversion note may make the labels of another version differ from the stored ones.
        f"(request.resource.version != '{names.V1BETA1}' && "
        f"oldObject.metadata[?'annotations'][?'{names.CONVERSION_DATA}'].hasValue())",
    ),
)
_LABEL_NAME: Final = "vdeletionprotectionlabel.kb.io"
_LABEL_PATH: Final = "/validate-deletion-protection-label"
#: Permissions for lookups and the identity check. [DP-57]
_PERMISSIONS: Final = {
    Cascading.NAMESPACE: (
        PolicyRule(("list",), ("",), ("persistentvolumeclaims", "pods")),
        PolicyRule(("get",), ("",), ("namespaces",)),
    ),
    Cascading.CUSTOM_RESOURCES: (PolicyRule(("get",), ("apiextensions.k8s.io",), ("customresourcedefinitions",)),),
}


def webhooks(table: Sequence[ProtectedKind]) -> tuple[Webhook, ...]:
    """Return the webhooks for a table of protected kinds."""
    return (*map(deletion_webhook, table), label_webhook(table))


def handlers(
    table: Sequence[ProtectedKind], lookups: DeletionLookups | None, gates: Gates, refused: Refused
) -> tuple[Handler, ...]:
    """Return the handlers of all protected kinds. ``lookups`` is None without a cluster; ``refused`` is called for each
    denial."""
    by_resource = {(kind.group, kind.resource): kind for kind in table}

    def warn(review: Review) -> Decision:
        return Allowed(label_warnings(by_resource, review))

    judges = (Handler(deletion_webhook(kind), DeletionJudge(kind, lookups, gates, refused)) for kind in table)
    return (*judges, Handler(label_webhook(table), warn))


def deletion_webhook(kind: ProtectedKind) -> Webhook:
    """Return the webhook that checks deletions of a protected kind."""
    only = " (Always only)" if kind.cascading is Cascading.NOTHING else ""
    ours = is_ours(kind.group)
    return Webhook(
        name=kind.webhook,
        path=kind.path,
        mutating=False,
        summary=f"Rejects the deletion of a protected {kind.kind}{only}",
        rules=(Rule((Operation.DELETE,), (kind.group,), kind.versions, (kind.resource,)),),
        # The label protects objects even while no manager is running. policies/webhooks.yaml may set Ignore. [DP-31]
        failure_policy="Fail",
        timeout_seconds=10,
        # For our own kinds, the webhook also handles writes (CS-173), whether the object is labeled or not.
        object_selector=None if ours else LABELED,
        match_conditions=_DELETED_WITH_LABEL if ours else (),
        # If the gate is off, the webhooks of kinds without ``Cascading`` are not registered; the others stay registered
        # and allow everything. [DP-5]
        gate=GATE if kind.cascading is Cascading.NOTHING else "",
        # Unknown versions of a built-in kind are allowed. [DP-7]
        unknown_passes=not ours,
        permissions=_PERMISSIONS.get(kind.cascading, ()),
    )


def label_webhook(table: Sequence[ProtectedKind]) -> Webhook:
    """Return the webhook that warns about ineffective values. It is called only for such values, and its failures are
    ignored because a warning is not worth a failed write. [DP-54]"""
    label = f"[?'{names.DELETE_PROTECTION}']"
    always_only = [f"{kind.group}/{kind.resource}" for kind in table if kind.cascading is Cascading.NOTHING]
    value = f"object.metadata.labels{label}.orValue('{Protection.ALWAYS}')"
    without_effect = (
        f"{value} != '{Protection.ALWAYS}' && ({value} != '{Protection.CASCADING}' || "
        f"(request.resource.group + '/' + request.resource.resource) in {always_only})"
    )
    return Webhook(
        name=_LABEL_NAME,
        path=_LABEL_PATH,
        mutating=False,
        summary=f"Warns about a label {names.DELETE_PROTECTION} that protects nothing",
        rules=tuple(
            Rule((Operation.CREATE, Operation.UPDATE), (kind.group,), kind.versions, (kind.resource,)) for kind in table
        ),
        failure_policy="Ignore",
        timeout_seconds=2,
        object_selector=LABELED,
        match_conditions=(
            MatchCondition("label-without-effect", f"has(object.metadata.labels) && {without_effect}"),
            MatchCondition(
                "label-is-new",
                f"request.operation == 'CREATE' || "
                f"object.metadata.labels{label} != oldObject.metadata[?'labels']{label}",
            ),
        ),
        gate=GATE,
        unknown_passes=True,
    )


class DeletionJudge:
    """Handles deletions of one kind: runs the plan, makes the lookups and records denials."""

    def __init__(self, kind: ProtectedKind, lookups: DeletionLookups | None, gates: Gates, refused: Refused) -> None:
        self._kind = kind
        self._lookups = lookups
        self._gates = gates
        self._refused = refused

    async def __call__(self, review: Review) -> Decision:
        """Return the decision. Only Namespaces and CustomResourceDefinitions may require a lookup in the cluster."""
        verdict = judge(self._kind, review, self._gates)
        if isinstance(verdict, NamespaceContents | CustomResources):
            return await self._look_up(verdict, review)
        return self._recorded(verdict, review)

    async def _look_up(self, question: NamespaceContents | CustomResources, review: Review) -> Decision:
        if self._lookups is None:
            return Allowed((f"without a cluster, it is unknown whether {question}",))
        denied = await self._forged(self._lookups, question)
        if denied is None and isinstance(question, NamespaceContents):
            denied = await self._contents(self._lookups, question.namespace)
        elif denied is None and isinstance(question, CustomResources):
            denied = await self._custom_resources(self._lookups, question)
        return self._recorded(denied or Allowed(), review)

    async def _forged(self, lookups: DeletionLookups, question: NamespaceContents | CustomResources) -> Denied | None:
        """Deny a review that may be forged. [DP-57]"""
        if self._gates.known_callers:
            return None
        try:
            live = await lookups.uid(*question.subject)
        except (KubeError, TimeoutError) as error:
            return not_identified(question, message_of(error))
        return judge_identity(question, live)

    async def _contents(self, lookups: DeletionLookups, namespace: str) -> Denied | None:
        for content in CONTENTS:
            try:
                found = await lookups.contents(content, namespace)
            except (KubeError, TimeoutError) as error:
                return not_listed(content.listed, message_of(error))
            if (denied := judge_count(self._shown_to_caller(found), content.found)) is not None:
                return denied
        return None

    async def _custom_resources(self, lookups: DeletionLookups, question: CustomResources) -> Denied | None:
        try:
            found = await lookups.custom_resources(question.resource)
        except (KubeError, TimeoutError) as error:
            return custom_resources_not_listed(question, message_of(error), forbidden=isinstance(error, Forbidden))
        return judge_count(self._shown_to_caller(found), "active CRs")

    def _shown_to_caller(self, found: Count) -> Count:
        """Hide the number of objects from a caller who may have forged the review. [DP-56]"""
        return found if self._gates.known_callers else dataclasses.replace(found, secret=True)

    def _recorded(self, decision: Allowed | Denied, review: Review) -> Decision:
        """Count and record a denial and return the decision. Undecodable reviews are not recorded."""
        if isinstance(decision, Denied) and decision.code == 403:
            # When a collection is deleted, the review has no name, but the object does.
            metadata = (review.old_object or {}).get("metadata") or {}
            namespace = review.namespace if self._kind.namespaced else ""
            self._refused(self._kind.kind, namespace, str(metadata.get("name") or review.name), review.username)
        return decision
