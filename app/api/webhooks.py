"""The two webhooks of a kind: how they are declared, and how they read a requested object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from app.api import names, structural
from app.api.conversion import ConversionError
from app.api.gojson import GoType, GoTypeError, normalized
from app.api.kind import KindDefinition, Version
from app.api.model import ObjectMeta
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
from app.kube.errors import CommandError
from app.kube.fielderrors import ErrorType, aggregate, shortened
from app.kube.jsonvalues import MAX_DEPTH, nested_deeper
from app.kube.patches import diff, same

M = TypeVar("M")
Model = TypeVar("Model", bound=BaseModel)


def judged(obj: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The object without the API server's account of who wrote what, which is nobody's to judge and may be nested as
    deep as whoever applies likes; empty where there is none."""
    metadata = obj.get("metadata") if obj else None
    if obj is None or not isinstance(metadata, Mapping) or "managedFields" not in metadata:
        return obj or {}
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def stored_object(kind: KindDefinition, specs: Mapping[str, GoType], review: Review) -> Mapping[str, Any] | None:
    """The object that an update changes, as Go stores it; None if there is none, or it cannot be read.

    What was stored while nobody judged must not stand in the way of something better. ``specs`` are the Go types of
    the kind's spec by version.
    """
    old = judged(review.old_object)
    if review.operation != Operation.UPDATE or not isinstance(old.get("spec"), Mapping):
        return None
    version = _requested_version(kind, old)
    if isinstance(version, Denied):
        return None
    try:
        return {**old, "spec": normalized(specs[version.name], old["spec"], "spec")}
    except GoTypeError:
        return None


def former_spec(
    kind: KindDefinition,
    specs: Mapping[str, GoType],
    review: Review,
    with_defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> Mapping[str, Any] | None:
    """The spec that an update changes, with the defaults of its own fields; None as :func:`stored_object` says.

    ``with_defaults`` copies an object and completes it. A Pod template has no defaults of its own there, and a large
    one is not held once more for it.
    """
    old = stored_object(kind, specs, review)
    if old is None:
        return None
    template = {field: value for field, value in old["spec"].items() if field == "template"}
    others = {field: value for field, value in old["spec"].items() if field != "template"}
    return {**with_defaults({**old, "spec": others})["spec"], **template}


def former_of(review: Review, read: Callable[[Mapping[str, Any]], M]) -> M | None:
    """What ``read`` makes of the object that an update changes; None if there is none, or it cannot be read: then it
    must not stand in the way of something better."""
    if review.operation != Operation.UPDATE or review.old_object is None:
        return None
    try:
        return read(review.old_object)
    except (ConversionError, ValidationError):
        return None


def is_leaving(review: Review) -> bool:
    """Whether the object that an update changes is being deleted. What the request says of it is a claim that the API
    server resets."""
    metadata = review.old_object.get("metadata") if review.old_object and review.operation == Operation.UPDATE else None
    return isinstance(metadata, Mapping) and bool(metadata.get("deletionTimestamp"))


def version_to_default(kind: KindDefinition, given: Mapping[str, Any]) -> Version | Denied:
    """The version of an object to be completed; a refusal of what cannot even be read.

    What else the schema forbids an API server says itself, after the defaults.
    """
    version = _requested_version(kind, given)
    if isinstance(version, Denied):
        return version
    mistyped = [error for error in structural.validate(version.schema, given) if error.type is ErrorType.TYPE_INVALID]
    return Denied(aggregate(mistyped), code=400) if mistyped else version


def version_to_judge(kind: KindDefinition, given: Mapping[str, Any]) -> Version | Denied:
    """The version of an object to be validated; a refusal of what the schema forbids.

    An API server has said that before it calls; reviews may come from elsewhere.
    """
    version = _requested_version(kind, given)
    if isinstance(version, Denied):
        return version
    message = structural.invalid_message(kind, version, given)
    return Denied(message, code=422, reason="Invalid") if message else version


def _requested_version(kind: KindDefinition, given: Mapping[str, Any]) -> Version | Denied:
    """The version the object is written in; a refusal if it is not of that kind, or its metadata is none."""
    if not given:
        return Denied("request.object: is required", code=400)
    for field in ("apiVersion", "kind"):
        if not isinstance(given.get(field, ""), str):
            return Denied(f"request.object.{field}: expected a string", code=400)
    version = kind.version(given.get("apiVersion") or "")
    if version is None or given.get("kind") != kind.kind:
        served = " or ".join(f"{kind.group}/{known.name}" for known in kind.versions)
        found = shortened(f"{given.get('kind')} of {given.get('apiVersion')}")
        return Denied(f"request.object: expected a {kind.kind} of {served}, got {found}", code=400)
    if field := nested_deeper(given):
        return Denied(f"{field}: nested deeper than {MAX_DEPTH} levels", code=400)
    try:
        ObjectMeta.model_validate(given.get("metadata") or {})
    except ValidationError as error:
        return Denied(unreadable(error, "metadata"), code=400)
    return version


def stored_model(
    kind: KindDefinition, model: type[Model], stored: Mapping[str, Any], defaulted: Mapping[str, Any]
) -> Model:
    """The model of a stored object, of ``defaulted``, its JSON form with its defaults. Raises CommandError with every
    field that cannot be read."""
    try:
        return model.model_validate(defaulted)
    except ValidationError as error:
        raise CommandError(f"{kind.kind} {stored['metadata']['name']}: {unreadable(error)}") from None


def unreadable(error: ValidationError, *at: str) -> str:
    """Every field that does not hold what it must; ``at`` is where the model stands."""
    found = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, (*at, *each['loc'])))}: {each['msg']}" for each in found)


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
