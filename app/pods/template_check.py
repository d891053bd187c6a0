"""Check a Pod template with a dry run on the API server, or structurally without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from app.api.core.defaults import completed_template, default_claim_template, default_pod_template
from app.api.core.pods import pod_errors
from app.api.gojson import normalized
from app.api.gopod import POD_TEMPLATE
from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.errors import BadRequest, Invalid, StatusCause
from app.kube.fielderrors import FieldError, Path, not_supported, required
from app.kube.jsonvalues import json_copy, objects
from app.kube.patches import same
from app.kube.resources import POD_TEMPLATES

# The API server validates a Pod template in a dry-run create of a core PodTemplate. This returns every error and its
# path in a few milliseconds, without involving quota or Pod admission. Pod validation is therefore not reimplemented
# here, and always matches the cluster.

PERMISSION = PolicyRule(("create",), ("",), ("podtemplates",), own_namespace=True)
_NAME = "pykruise-check-"
_ROOT = "template"


async def template_errors(client: Client, namespace: str, template: Mapping[str, Any], path: str) -> list[str]:
    """Return the errors in ``template`` (metadata and spec), with paths that begin at ``path``; nothing is created.

    ``path`` is the location of the template in the user's object, such as ``spec.template``; "" if the fields of its
    spec are in the object itself. Raises ApiError if the server refuses the request for another reason.
    """
    body = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"generateName": _NAME, "namespace": namespace},
        "template": template,
    }
    try:
        await client.create(POD_TEMPLATES, body, namespace, dry_run=True)
    except Invalid as error:
        return [_line(cause, path) for cause in error.causes] or [error.message]
    except BadRequest as error:
        # Type errors come without causes, but the message names the Go field.
        return [f"{path or 'spec'}: {error.message}"]
    return []


def _line(cause: StatusCause, path: str) -> str:
    field = cause.field.removeprefix(_ROOT)
    return f"{path}{field}: {cause.message}" if path else f"{field.removeprefix('.')}: {cause.message}"


GATE: Final = "TemplateNoDefaults"
HOST_PORTS_GATE: Final = "DefaultHostNetworkHostPortsInPodTemplates"
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")


class TemplateLookups:
    """Data that webhooks need in addition to the request. Without a client, templates are checked structurally."""

    def __init__(
        self, enabled: Callable[[str], bool] = lambda _: False, client: Client | None = None, namespace: str = ""
    ) -> None:
        """``enabled`` returns whether a feature gate is on; ``namespace`` is the manager's own."""
        #: Whether feature gates turn off template defaulting, and turn on host port defaulting. [CS-18]
        self.no_template_defaults = enabled(GATE)
        self.default_host_ports = enabled(HOST_PORTS_GATE)
        self.client = client
        self.namespace = namespace

    async def template_errors(self, template: Mapping[str, Any], path: str) -> Sequence[str] | None:
        """Return the errors in a Pod template at ``path`` from a dry run in the manager's namespace; None without an
        API server."""
        if self.client is None:
            return None
        return await template_errors(self.client, self.namespace, template, path)


def template_changed(spec: Mapping[str, Any], former: Mapping[str, Any] | None) -> bool:
    """Return whether the template differs from the former one: on update, only a changed template is defaulted.
    ``former`` is the result of ``former_spec``. [CS-16, AS-14]"""
    if former is None:
        return True
    new = normalized(POD_TEMPLATE, spec.get("template") or {}, "spec.template")
    return not same(new, former.get("template") or {})


def default_templates(
    spec: dict[str, Any], former: Mapping[str, Any] | None = None, *, host_ports: bool = False
) -> None:
    """Set defaults in the Pod template and the claim templates of ``spec``. [CS-16, CS-17, AS-14]

    ``former`` is the stored spec; its template is kept if the templates differ only in defaults.
    """
    template = spec.get("template")
    if isinstance(template, dict):
        spec["template"] = completed_template(template, (former or {}).get("template"), host_ports=host_ports)
    for claim in objects(spec.get("volumeClaimTemplates")):
        default_claim_template(claim)


def complete_templates(lookups: TemplateLookups, spec: dict[str, Any], former: Mapping[str, Any] | None) -> None:
    """Set defaults in the templates of ``spec`` if its Pod template is new or has changed."""
    if not lookups.no_template_defaults and template_changed(spec, former):
        default_templates(spec, former, host_ports=lookups.default_host_ports)


async def judge_template(lookups: TemplateLookups, given: Mapping[str, Any], path: Path) -> Sequence[FieldError | str]:
    """Return every error in the Pod template at ``path``."""
    template = json_copy(dict(given))
    default_pod_template(template)
    found = await lookups.template_errors(template, str(path))
    if found is not None:
        return found
    pod, at = template.get("spec") or {}, path.child("spec")
    containers, policy = pod.get("containers") or [], pod.get("restartPolicy")
    errors = [] if containers else [required(at.child("containers"))]
    errors += pod_errors(containers, pod.get("initContainers") or [], pod.get("volumes") or [], at)
    if policy not in (None, "", *_RESTART_POLICIES):
        errors.append(not_supported(at.child("restartPolicy"), policy, _RESTART_POLICIES))
    return errors
