"""Check a Pod template with a dry run on the API server, or structurally where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from app.api.core.defaults import default_pod_template
from app.api.core.pods import pod_errors
from app.api.gojson import normalized
from app.api.gopod import POD_TEMPLATE
from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.errors import BadRequest, Invalid, StatusCause
from app.kube.fielderrors import FieldError, Path, not_supported, required
from app.kube.jsonvalues import json_copy
from app.kube.patches import same
from app.kube.resources import POD_TEMPLATES

# Asks the API server what it thinks of a Pod template: a dry-run create of a core PodTemplate (D-20).
#
# It answers with every error and its path, in a few milliseconds, and neither quota nor Pod admission is in the way.
# So Pod validation need not be written again, and is always that of the cluster.

PERMISSION = PolicyRule(("create",), ("",), ("podtemplates",), own_namespace=True)
_NAME = "pykruise-check-"
_ROOT = "template"


async def template_errors(client: Client, namespace: str, template: Mapping[str, Any], path: str) -> list[str]:
    """What is wrong with ``template`` (metadata and spec), with paths beginning at ``path``; nothing is created.

    ``path`` is where the template stands in the user's object, such as ``spec.template``; "" if the fields of its spec
    stand in the object's own. Raises ApiError where the server refuses for another reason than the template.
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
        # Not even of the right types: there are no causes, but the message names the Go field.
        return [f"{path or 'spec'}: {error.message}"]
    return []


def _line(cause: StatusCause, path: str) -> str:
    field = cause.field.removeprefix(_ROOT)
    return f"{path}{field}: {cause.message}" if path else f"{field.removeprefix('.')}: {cause.message}"


GATE: Final = "TemplateNoDefaults"
HOST_PORTS_GATE: Final = "DefaultHostNetworkHostPortsInPodTemplates"
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")


class TemplateLookups(Protocol):
    """What the webhooks ask beside the request."""

    #: Gates: leave templates as they are; default host ports (CS-18).
    no_template_defaults: bool
    default_host_ports: bool

    async def template_errors(self, template: Mapping[str, Any], path: str) -> Sequence[str] | None:
        """What an API server says about a Pod template that stands at ``path``; None where none can be asked."""
        ...


class StandaloneTemplates:
    """Without a cluster: templates are checked structurally."""

    def __init__(self, enabled: Callable[[str], bool] = lambda _: False) -> None:
        """``enabled``: the gates."""
        self.no_template_defaults = enabled(GATE)
        self.default_host_ports = enabled(HOST_PORTS_GATE)

    async def template_errors(self, template: Mapping[str, Any], path: str) -> Sequence[str] | None:  # noqa: ARG002
        """Nobody to ask."""
        return None


class ClusterTemplates(StandaloneTemplates):
    """With a cluster."""

    def __init__(self, client: Client, namespace: str, enabled: Callable[[str], bool] = lambda _: False) -> None:
        """``namespace`` is the manager's own."""
        super().__init__(enabled)
        self._client = client
        self._namespace = namespace

    async def template_errors(self, template: Mapping[str, Any], path: str) -> Sequence[str] | None:
        """By a dry run in the manager's namespace."""
        return await template_errors(self._client, self._namespace, template, path)


def template_changed(spec: Mapping[str, Any], former: Mapping[str, Any] | None) -> bool:
    """On update, only a changed template is defaulted. ``former``: what ``former_spec`` says. CS-16, AS-14."""
    if former is None:
        return True
    return not same(normalized(POD_TEMPLATE, spec.get("template") or {}, "spec.template"), former.get("template"))


async def judge_template(lookups: TemplateLookups, given: Mapping[str, Any], path: Path) -> Sequence[FieldError | str]:
    """Every mistake in a Pod template that stands at ``path``."""
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
