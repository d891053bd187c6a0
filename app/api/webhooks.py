"""The two webhooks of a kind of ours: their declarations, and how the mutating one answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from app.api import names
from app.api.gojson import GoType, GoTypeError, normalized
from app.api.kind import KindDefinition
from app.api.requested import judged, version_to_default
from app.kube.admission import (
    Allowed,
    Decision,
    Denied,
    MatchCondition,
    Operation,
    Patched,
    PolicyRule,
    Review,
    Rule,
    Webhook,
)
from app.kube.patches import diff, same

_NOTE: Final = f"metadata[?'annotations'][?'{names.CONVERSION_DATA}']"
#: D-11: what changes metadata alone (a finalizer, an annotation) is nothing to default or judge. A conversion note is
#: part of the spec in the stored version.
SPEC_CHANGED: Final = MatchCondition(
    "spec-changed",
    f"request.operation != 'UPDATE' || object.spec != oldObject.spec || object.{_NOTE} != oldObject.{_NOTE}",
)


def mutating_webhook(
    kind: KindDefinition, summary: str, *permissions: PolicyRule, when: Sequence[MatchCondition] = (SPEC_CHANGED,)
) -> Webhook:
    """The webhook that fills in the defaults of a kind, in all its versions. ``permissions``: what it may ask
    of the API server; ``when``: conditions without which it is not called."""
    return _webhook(kind, "mutate", summary, permissions, when)


def validating_webhook(
    kind: KindDefinition, summary: str, *permissions: PolicyRule, when: Sequence[MatchCondition] = (SPEC_CHANGED,)
) -> Webhook:
    """The webhook that refuses what cannot work; the arguments as for :func:`mutating_webhook`."""
    return _webhook(kind, "validate", summary, permissions, when)


def _webhook(
    kind: KindDefinition, verb: str, summary: str, permissions: tuple[PolicyRule, ...], when: Sequence[MatchCondition]
) -> Webhook:
    versions = tuple(sorted(version.name for version in kind.versions))
    return Webhook(
        name=f"{verb[0]}{kind.singular}.kb.io",
        path=f"/{verb}-{kind.group.replace('.', '-')}-{kind.singular}",
        mutating=verb == "mutate",
        rules=(Rule((Operation.CREATE, Operation.UPDATE), (kind.group,), versions, (kind.plural,)),),
        match_conditions=tuple(when),
        summary=summary,
        permissions=permissions,
    )


def completed(
    review: Review,
    kind: KindDefinition,
    specs: Mapping[str, GoType],
    complete: Callable[[Mapping[str, Any]], dict[str, Any]],
    *,
    rule: str,
) -> Decision:
    """The object as Go stores it with its defaults; let through as it is where nothing is missing.

    ``specs`` are the Go types of the kind's spec by version. ``complete`` gives the object with its defaults and may
    raise GoTypeError. ``rule`` says where the defaults come from.
    """
    given = judged(review.object)
    version = version_to_default(kind, given)
    if isinstance(version, Denied):
        return version
    go_spec = specs[version.name]
    try:
        before = normalized(go_spec, given.get("spec") or {}, "spec")
        defaulted = complete(given)
        stored = normalized(go_spec, defaulted.get("spec") or {}, "spec")
    except GoTypeError as error:
        return Denied(str(error), code=400)
    if same(before, stored):
        # OpenKruise writes nothing then, and so leaves what is empty (CS-19).
        return Allowed()
    return Patched(tuple(diff(given, {**defaulted, "spec": stored}, rule=rule)))
