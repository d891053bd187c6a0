"""The two webhooks of Advanced DaemonSet: fill in what is left out, refuse what cannot work (DS-4 … DS-15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from app.api import names
from app.api.core_defaults import default_pod_template
from app.api.core_validation import pod_errors
from app.api.daemonset import DAEMON_SET
from app.api.daemonset.defaults import with_defaults
from app.api.daemonset.gospec import SPECS
from app.api.gojson import GoTypeError, normalized
from app.api.jsonvalue import json_copy
from app.api.requested import is_leaving, judged, stored_object, version_to_judge
from app.api.webhooks import completed, mutating_webhook, validating_webhook
from app.kube.admission import Allowed, Decision, Denied, Handler, Review
from app.kube.client import Client
from app.kube.fielderrors import FieldError, aggregate, not_supported, required
from app.kube.patches import same
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.pods.template_check import template_errors
from app.workloads.daemonset.validation import metadata_errors, spec_errors, warnings
from app.workloads.engine.validation import SPEC

MUTATE: Final = mutating_webhook(DAEMON_SET, "Fills in the defaults of an Advanced DaemonSet")
VALIDATE: Final = validating_webhook(DAEMON_SET, "Refuses Advanced DaemonSets that cannot work", MAY_CHECK_TEMPLATES)
WEBHOOKS: Final = (MUTATE, VALIDATE)
_TEMPLATE: Final = SPEC.child("template")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")


class TemplateLookups(Protocol):
    """What validation asks beside the request."""

    async def template_errors(self, template: Mapping[str, Any], path: str) -> Sequence[str] | None:
        """What an API server says about a Pod template that stands at ``path``; None where none can be asked."""
        ...


class StandaloneLookups:
    """Without a cluster: templates are checked structurally."""

    async def template_errors(self, template: Mapping[str, Any], path: str) -> Sequence[str] | None:  # noqa: ARG002
        """Nobody to ask."""
        return None


class ClusterLookups(StandaloneLookups):
    """With a cluster."""

    def __init__(self, client: Client, namespace: str) -> None:
        """``namespace`` is the manager's own."""
        self._client = client
        self._namespace = namespace

    async def template_errors(self, template: Mapping[str, Any], path: str) -> Sequence[str] | None:
        """By a dry run in the manager's namespace."""
        return await template_errors(self._client, self._namespace, template, path)


def handlers(lookups: TemplateLookups) -> tuple[Handler, ...]:
    """The declarations with the functions that answer for them."""
    return (Handler(MUTATE, mutate), Handler(VALIDATE, partial(validate, lookups)))


def mutate(review: Review) -> Decision:
    """DS-4 … DS-7."""
    return completed(review, DAEMON_SET, SPECS, with_defaults, rule="DS-4")


async def validate(lookups: TemplateLookups, review: Review) -> Decision:
    """DS-8 … DS-15; all mistakes are reported together."""
    given = judged(review.object)
    version = version_to_judge(DAEMON_SET, given)
    if isinstance(version, Denied):
        return version
    metadata, former = given.get("metadata") or {}, _former_spec(review)
    try:
        given = {**given, "spec": normalized(SPECS[version.name], given["spec"], "spec")}
    except GoTypeError as error:
        return Denied(str(error), code=400)
    spec = with_defaults(given)["spec"]
    if is_leaving(review):
        return Allowed()
    older = version.name == names.V1ALPHA1
    try:
        found = await _template_errors(lookups, spec, former)
        errors = [*metadata_errors(metadata), *spec_errors(spec, former, found, older=older)]
    except GoTypeError as error:
        return Denied(str(error), code=400)
    if errors:
        return Denied(aggregate(errors), code=422)
    return Allowed(tuple(warnings(spec)))


def _former_spec(review: Review) -> Mapping[str, Any] | None:
    """The stored spec with its defaults, in the version of the request; None if there is none to compare with."""
    old = stored_object(DAEMON_SET, SPECS, review)
    return with_defaults(old)["spec"] if old is not None else None


async def _template_errors(
    lookups: TemplateLookups, spec: Mapping[str, Any], former: Mapping[str, Any] | None
) -> Sequence[FieldError | str]:
    """DS-9. A template that stays was judged when it came."""
    if former is not None and same(spec.get("template"), former.get("template")):
        return ()
    template = json_copy(spec.get("template") or {})
    default_pod_template(template)
    found = await lookups.template_errors(template, str(_TEMPLATE))
    if found is not None:
        return found
    pod, at = template.get("spec") or {}, _TEMPLATE.child("spec")
    containers, policy = pod.get("containers") or [], pod.get("restartPolicy")
    errors = [] if containers else [required(at.child("containers"))]
    errors += pod_errors(containers, pod.get("initContainers") or [], pod.get("volumes") or [], at)
    if policy not in (None, "", *_RESTART_POLICIES):
        errors.append(not_supported(at.child("restartPolicy"), policy, _RESTART_POLICIES))
    return errors
