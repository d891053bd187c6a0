"""The two webhooks of a kind: their declarations, and how they read a requested object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from app.api import names, structural
from app.api.conversion import ConversionError
from app.api.gojson import GoType, GoTypeError, normalized
from app.api.kind import KindDefinition, Version
from app.api.model import ObjectMeta
from app.kube.admission import (
    Allowed,
    Decide,
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
from app.kube.fielderrors import ErrorType, FieldError, aggregate, shortened
from app.kube.jsonvalues import MAX_DEPTH, nested_deeper, without_managed_fields
from app.kube.patches import diff, same

M = TypeVar("M")
Model = TypeVar("Model", bound=BaseModel)


def stored_object(kind: KindDefinition, specs: Mapping[str, GoType], review: Review) -> Mapping[str, Any] | None:
    """Return the object that an update changes, as Go stores it, or None if there is none or it cannot be read.

    An invalid stored object must not block an update that fixes it. ``specs`` are the Go types of the kind's spec by
    version.
    """
    old = without_managed_fields(review.old_object)
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
    """Return the spec that an update changes, with defaults except in the Pod template, or None as in
    :func:`stored_object`.

    ``with_defaults`` copies an object and fills in its defaults. The template gets no defaults, because it may
    be large.
    """
    old = stored_object(kind, specs, review)
    if old is None:
        return None
    template = {field: value for field, value in old["spec"].items() if field == "template"}
    others = {field: value for field, value in old["spec"].items() if field != "template"}
    return {**with_defaults({**old, "spec": others})["spec"], **template}


def former_of(review: Review, read: Callable[[Mapping[str, Any]], M]) -> M | None:
    """Apply ``read`` to the object that an update changes. Return None if there is none or it cannot be read: an
    invalid stored object must not block an update that fixes it."""
    if review.operation != Operation.UPDATE or review.old_object is None:
        return None
    try:
        return read(review.old_object)
    except (ConversionError, ValidationError):
        return None


def is_leaving(review: Review) -> bool:
    """Return whether the object that an update changes is being deleted. The new object's metadata is not trusted: the
    API server resets it."""
    metadata = review.old_object.get("metadata") if review.old_object and review.operation == Operation.UPDATE else None
    return isinstance(metadata, Mapping) and bool(metadata.get("deletionTimestamp"))


def version_to_default(kind: KindDefinition, given: Mapping[str, Any]) -> Version | Denied:
    """Return the version of an object to be defaulted, or a denial if it cannot be read.

    The API server reports other schema errors itself, after defaulting.
    """
    version = _requested_version(kind, given)
    if isinstance(version, Denied):
        return version
    errors = structural.each_error(version.schema, given)
    mistyped = aggregate(error for error in errors if error.type is ErrorType.TYPE_INVALID)
    return Denied(mistyped, code=400) if mistyped else version


def version_to_judge(kind: KindDefinition, given: Mapping[str, Any]) -> Version | Denied:
    """Return the version of an object to be validated, or a denial if it violates the schema.

    An API server checks this before it calls the webhook, but reviews may come from other clients.
    """
    version = _requested_version(kind, given)
    if isinstance(version, Denied):
        return version
    message = structural.invalid_message(kind, version, given)
    return Denied(message, code=422, reason="Invalid") if message else version


def _requested_version(kind: KindDefinition, given: Mapping[str, Any]) -> Version | Denied:
    """Return the version of the object, or a denial if it is not of that kind or its metadata is invalid."""
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
    """Return the model of a stored object from ``defaulted``, its JSON with defaults. Raises CommandError naming
    every field that cannot be read."""
    try:
        return model.model_validate(defaulted)
    except ValidationError as error:
        raise CommandError(f"{kind.kind} {stored['metadata']['name']}: {unreadable(error)}") from None


def unreadable(error: ValidationError, *at: str) -> str:
    """Return a message with every invalid field; ``at`` is the path of the model."""
    found = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, (*at, *each['loc'])))}: {each['msg']}" for each in found)


_NOTE: Final = f"metadata[?'annotations'][?'{names.CONVERSION_DATA}']"
#: A change to metadata only (a finalizer, an annotation) needs no defaulting or validation. A conversion note counts as
#: spec, because it restores fields of the spec.
SPEC_CHANGED: Final = MatchCondition(
    "spec-changed",
    f"request.operation != 'UPDATE' || object.spec != oldObject.spec || object.{_NOTE} != oldObject.{_NOTE}",
)


def mutating_webhook(
    kind: KindDefinition, summary: str, *permissions: PolicyRule, when: Sequence[MatchCondition] = (SPEC_CHANGED,)
) -> Webhook:
    """Return the mutating webhook that fills in the defaults of a kind, in all its versions.

    ``permissions`` are its API permissions, ``when`` the conditions for calling it.
    """
    return _webhook(kind, "mutate", summary, permissions, when)


def validating_webhook(
    kind: KindDefinition, summary: str, *permissions: PolicyRule, when: Sequence[MatchCondition] = (SPEC_CHANGED,)
) -> Webhook:
    """Return the validating webhook of a kind; see :func:`mutating_webhook` for the arguments."""
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
    """Return a patch that adds missing defaults, so that the object is as Go stores it. If none is missing, allow the
    object unchanged.

    Fields that an update does not change, as Go reads them, keep their stored form, so that re-applying a manifest
    does not raise the generation. ``specs`` are the Go types of the kind's spec by version. ``complete`` returns the
    object with its defaults and may raise GoTypeError. ``rule`` is the ID that the patch operations cite. [CS-19]
    """
    given = without_managed_fields(review.object)
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
    # OpenKruise writes nothing if no default is missing, so empty fields are kept.
    result = given if same(before, stored) else {**defaulted, "spec": stored}
    former = stored_object(kind, specs, review)
    if former is not None and review.old_object is not None:
        kept = _with_stored_fields(result.get("spec") or {}, stored, review.old_object["spec"], former["spec"])
        result = {**result, "spec": kept}
    operations = tuple(diff(given, result, rule=rule))
    return Patched(operations) if operations else Allowed()


def _with_stored_fields(
    spec: Mapping[str, Any], printed: Mapping[str, Any], old: Mapping[str, Any], old_printed: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``spec`` with the old form of each field that Go marshals the same in ``spec`` and ``old``. Such a field
    is omitted if ``old`` lacks it."""
    missing = object()
    sources = (
        (field, old if same(printed.get(field, missing), old_printed.get(field, missing)) else spec)
        for field in {**spec, **old}
    )
    return {field: source[field] for field, source in sources if field in source}


@dataclass(frozen=True, slots=True)
class Submitted:
    """An object to be validated, which already conforms to the schema of its version."""

    review: Review
    #: The object without managedFields.
    object: Mapping[str, Any]
    version: Version

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the metadata, empty if there is none."""
        return self.object.get("metadata") or {}

    @property
    def is_leaving(self) -> bool:
        """Return whether the object is being deleted. Its content must then not block an update such as removing a
        finalizer."""
        return is_leaving(self.review)

    def specs(
        self, with_defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """Return the spec with defaults and, for an update, the spec it replaces."""
        former = None
        if self.review.operation == Operation.UPDATE:
            former = with_defaults(without_managed_fields(self.review.old_object)).get("spec")
        return with_defaults(self.object).get("spec") or {}, former if isinstance(former, Mapping) else None

    @property
    def keeps_spec(self) -> bool:
        """Return whether an update changes only metadata."""
        old = self.review.old_object
        return old is not None and same(old.get("spec"), self.object.get("spec"))

    def go_spec(self, specs: Mapping[str, GoType]) -> dict[str, Any]:
        """Return the spec as Go stores it; ``specs`` are its Go types by version. Raises GoTypeError."""
        spec: dict[str, Any] = normalized(specs[self.version.name], self.object.get("spec") or {}, "spec")
        return spec


#: A decision, or the errors in the object.
Judgment: TypeAlias = Decision | Iterable[FieldError | str]


def validating(kind: KindDefinition, judge: Callable[[Submitted], Awaitable[Judgment]], *, code: int = 422) -> Decide:
    """Return the decision function of a kind's validating webhook. It reports all errors at once.

    ``judge`` raises GoTypeError, ConversionError or ValidationError for an object that it cannot read. ``code`` is the
    HTTP status code for errors.
    """

    async def validate(review: Review) -> Decision:
        given = without_managed_fields(review.object)
        version = version_to_judge(kind, given)
        if isinstance(version, Denied):
            return version
        try:
            judgment = await judge(Submitted(review, given, version))
        except (ConversionError, GoTypeError) as error:
            return Denied(str(error), code=400)
        except ValidationError as error:
            return Denied(unreadable(error), code=400)
        if isinstance(judgment, Allowed | Patched | Denied):
            return judgment
        errors = list(judgment)
        return Denied(aggregate(errors), code=code) if errors else Allowed()

    return validate
