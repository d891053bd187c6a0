"""Webhooks of ImagePullJob, ImageListPullJob and NodeImage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from app.api import names
from app.api.kind import KindDefinition
from app.api.webhooks import Judgment, Submitted, mutating_webhook, validating, validating_webhook, version_to_default
from app.features.imagepull.defaults import job_with_defaults, list_job_with_defaults, node_image_with_defaults
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
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
from app.kube.fielderrors import FieldError
from app.kube.jsonvalues import without_managed_fields
from app.kube.patches import diff, same

DAEMON_GATE: Final = "KruiseDaemon"
JOB_GATE: Final = "ImagePullJobGate"

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """Webhooks, defaults and validation of one kind."""

    definition: KindDefinition
    mutate: Webhook
    validate: Webhook
    #: Required feature gates, in the order in which a disabled one is reported. [IMG-2]
    gates: tuple[str, ...]
    #: Returns the object with its defaults, given the current RFC 3339 time.
    defaults: Callable[[Object, str], dict[str, Any]]
    #: Returns the errors of a defaulted spec, given the spec it replaces.
    errors: Callable[[Object, Object | None], list[FieldError]]
    warnings: Callable[[Object, Object | None], list[str]]


def _versioned(webhook: Webhook) -> Webhook:
    """Return the webhook with its OpenKruise name, which appears in rejections."""
    return replace(webhook, name=webhook.name.replace(".", "-v1beta1.", 1))


_JOBS: Final = _Kind(
    IMAGE_PULL_JOB,
    _versioned(mutating_webhook(IMAGE_PULL_JOB, "Sets the defaults of an ImagePullJob")),
    _versioned(validating_webhook(IMAGE_PULL_JOB, "Rejects invalid ImagePullJobs")),
    (DAEMON_GATE, JOB_GATE),
    lambda obj, _: job_with_defaults(obj),
    job_errors,
    lambda spec, _: job_warnings(spec),
)
_LIST_JOBS: Final = _Kind(
    IMAGE_LIST_PULL_JOB,
    _versioned(mutating_webhook(IMAGE_LIST_PULL_JOB, "Sets the defaults of an ImageListPullJob")),
    _versioned(validating_webhook(IMAGE_LIST_PULL_JOB, "Rejects invalid ImageListPullJobs")),
    (DAEMON_GATE, JOB_GATE),
    lambda obj, _: list_job_with_defaults(obj),
    lambda spec, _: list_job_errors(spec),
    lambda spec, _: job_warnings(spec),
)
_NODE_IMAGES: Final = _Kind(
    NODE_IMAGE,
    mutating_webhook(NODE_IMAGE, "Sets the defaults of a NodeImage and sorts its tags"),
    validating_webhook(NODE_IMAGE, "Rejects invalid NodeImages"),
    (DAEMON_GATE,),
    node_image_with_defaults,
    lambda spec, _: node_image_errors(spec),
    node_image_warnings,
)
_KINDS: Final = (_JOBS, _LIST_JOBS, _NODE_IMAGES)
WEBHOOKS: Final = tuple(webhook for kind in _KINDS for webhook in (kind.mutate, kind.validate))


def handlers(clock: Clock, enabled: Enabled) -> tuple[Handler, ...]:
    """Return the webhook handlers of the three kinds."""
    found: list[Handler] = []
    for kind in _KINDS:
        found += (
            Handler(kind.mutate, partial(mutate, kind, clock)),
            Handler(kind.validate, validating(kind.definition, partial(judge, kind, clock, enabled), code=400)),
        )
    return tuple(found)


def mutate(kind: _Kind, clock: Clock, review: Review) -> Decision:
    """Set the defaults of the object under review. [IMG-4 … IMG-6]"""
    given = without_managed_fields(review.object)
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
        # OpenKruise drops an empty pullSecrets when it re-encodes a changed object.
        del spec["pullSecrets"]
    operations = tuple(diff(given, defaulted, rule="IMG-4"))
    return Patched(operations) if operations else Allowed()


def only_completes_pull_policy(given: Object, defaulted: Object) -> bool:
    """Return whether defaulting only adds fields of a pull policy. [IMG-4]

    These fields do not change the meaning of the policy. In this case, OpenKruise omits them in v1beta1, and so does
    this webhook, so that both store the same object.
    """
    before, after = given.get("spec"), defaulted.get("spec")
    if not (
        isinstance(before, Mapping) and isinstance(after, Mapping) and isinstance(before.get("pullPolicy"), Mapping)
    ):
        return False
    rest = {**defaulted, "spec": {**after, "pullPolicy": before["pullPolicy"]}}
    return rest == given


async def judge(kind: _Kind, clock: Clock, enabled: Enabled, given: Submitted) -> Judgment:
    """Validate the object. [IMG-7 … IMG-12]"""
    # A review not sent by the API server may lack the default times.
    now = rfc3339(clock.now())
    spec, former = given.specs(lambda obj: kind.defaults(obj, now))
    if given.is_leaving or (former is not None and same(former, spec)):
        # Updates that leave the spec unchanged, such as removing a finalizer, must not fail because of it.
        return Allowed()
    if off := [gate for gate in kind.gates if not enabled(gate)]:
        return Denied(gate_is_off(*off), code=403)
    return kind.errors(spec, former) or Allowed(tuple(kind.warnings(spec, former)))
