"""The webhooks of ImagePullJobs, ImageListPullJobs and NodeImages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from app.api import names
from app.api.kind import KindDefinition
from app.api.webhooks import (
    is_leaving,
    judged,
    mutating_webhook,
    validating_webhook,
    version_to_default,
    version_to_judge,
)
from app.features.imagepull.kind import (
    IMAGE_LIST_PULL_JOB,
    IMAGE_PULL_JOB,
    NODE_IMAGE,
    job_with_defaults,
    list_job_with_defaults,
    node_image_with_defaults,
)
from app.features.imagepull.validation import (
    job_errors,
    job_warnings,
    list_job_errors,
    node_image_errors,
    node_image_warnings,
)
from app.framework.options import Enabled, gate_is_off
from app.kube.admission import Allowed, Decision, Denied, Handler, Operation, Patched, Review, Webhook
from app.kube.clock import Clock, rfc3339
from app.kube.fielderrors import FieldError, aggregate
from app.kube.patches import diff, same

DAEMON_GATE: Final = "KruiseDaemon"
JOB_GATE: Final = "ImagePullJobGate"

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What differs between the three."""

    definition: KindDefinition
    mutate: Webhook
    validate: Webhook
    #: The gates that must be on, in the order in which one that is off is told (IMG-2).
    gates: tuple[str, ...]
    #: The object with its defaults; gets the time as the API writes it.
    defaults: Callable[[Object, str], dict[str, Any]]
    #: What is wrong with a spec that has its defaults; the second: the spec that it replaces.
    errors: Callable[[Object, Object | None], list[FieldError]]
    warnings: Callable[[Object, Object | None], list[str]]


_JOBS: Final = _Kind(
    IMAGE_PULL_JOB,
    mutating_webhook(IMAGE_PULL_JOB, "Fills in the defaults of an ImagePullJob"),
    validating_webhook(IMAGE_PULL_JOB, "Refuses ImagePullJobs that cannot work"),
    (DAEMON_GATE, JOB_GATE),
    lambda obj, _: job_with_defaults(obj),
    job_errors,
    lambda spec, _: job_warnings(spec),
)
_LIST_JOBS: Final = _Kind(
    IMAGE_LIST_PULL_JOB,
    mutating_webhook(IMAGE_LIST_PULL_JOB, "Fills in the defaults of an ImageListPullJob"),
    validating_webhook(IMAGE_LIST_PULL_JOB, "Refuses ImageListPullJobs that cannot work"),
    (DAEMON_GATE, JOB_GATE),
    lambda obj, _: list_job_with_defaults(obj),
    lambda spec, _: list_job_errors(spec),
    lambda spec, _: job_warnings(spec),
)
_NODE_IMAGES: Final = _Kind(
    NODE_IMAGE,
    mutating_webhook(NODE_IMAGE, "Fills in the defaults of a NodeImage and sorts its tags"),
    validating_webhook(NODE_IMAGE, "Refuses NodeImages that cannot be pulled"),
    (DAEMON_GATE,),
    node_image_with_defaults,
    lambda spec, _: node_image_errors(spec),
    node_image_warnings,
)
_KINDS: Final = (_JOBS, _LIST_JOBS, _NODE_IMAGES)
WEBHOOKS: Final = tuple(webhook for kind in _KINDS for webhook in (kind.mutate, kind.validate))


def handlers(clock: Clock, enabled: Enabled) -> tuple[Handler, ...]:
    """The declarations with the functions that answer for them."""
    found: list[Handler] = []
    for kind in _KINDS:
        found += (
            Handler(kind.mutate, partial(mutate, kind, clock)),
            Handler(kind.validate, partial(validate, kind, clock, enabled)),
        )
    return tuple(found)


def mutate(kind: _Kind, clock: Clock, review: Review) -> Decision:
    """IMG-4 … IMG-6."""
    given = judged(review.object)
    version = version_to_default(kind.definition, given)
    if isinstance(version, Denied):
        return version
    defaulted = kind.defaults(given, rfc3339(clock.now()))
    if kind is _JOBS and version.name == names.V1ALPHA1 and review.operation == Operation.CREATE:
        metadata = defaulted.setdefault("metadata", {})
        finalizers = metadata.get("finalizers") or []
        if names.DELETION_PROTECTION not in finalizers:
            metadata["finalizers"] = [*finalizers, names.DELETION_PROTECTION]
    spec = defaulted.get("spec")
    if kind is not _NODE_IMAGES and version.name == names.V1BETA1 and only_completes_pull_policy(given, defaulted):
        return Allowed()
    if defaulted != given and isinstance(spec, dict) and spec.get("pullSecrets") == []:
        # Whoever reads the object into Go's type and writes it out again leaves it out; OpenKruise does so only then.
        del spec["pullSecrets"]
    operations = tuple(diff(given, defaulted, rule="IMG-4"))
    return Patched(operations) if operations else Allowed()


def only_completes_pull_policy(given: Object, defaulted: Object) -> bool:
    """IMG-4: whether nothing is missing but members of a pull policy, which mean the same where they are not said. In
    v1beta1 OpenKruise leaves them out then, and so do we: an object reads the same here and there."""
    before, after = given.get("spec"), defaulted.get("spec")
    if not (
        isinstance(before, Mapping) and isinstance(after, Mapping) and isinstance(before.get("pullPolicy"), Mapping)
    ):
        return False
    rest = {**defaulted, "spec": {**after, "pullPolicy": before["pullPolicy"]}}
    return rest == given


def validate(kind: _Kind, clock: Clock, enabled: Enabled, review: Review) -> Decision:
    """IMG-7 … IMG-12; all mistakes are reported together."""
    given = judged(review.object)
    version = version_to_judge(kind.definition, given)
    if isinstance(version, Denied):
        return version
    # NodeImages have their times by now; reviews may come from elsewhere.
    now = rfc3339(clock.now())
    spec = kind.defaults(given, now).get("spec") or {}
    former = kind.defaults(judged(review.old_object), now).get("spec") if review.operation == Operation.UPDATE else None
    if is_leaving(review) or (former is not None and same(former, spec)):
        # What still has to happen (a finalizer leaving) must not fail on content that it does not touch.
        return Allowed()
    if off := [gate for gate in kind.gates if not enabled(gate)]:
        return Denied(gate_is_off(*off), code=403)
    before = former if isinstance(former, Mapping) else None
    errors = kind.errors(spec, before)
    if errors:
        return Denied(aggregate(errors), code=400)
    return Allowed(tuple(kind.warnings(spec, before)))
