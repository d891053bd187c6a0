"""What Kubernetes says of a workload's Pod template: by a dry run, or structurally where there is no cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from app.api.core_defaults import default_pod_template
from app.api.core_validation import pod_errors
from app.api.gojson import normalized
from app.api.gopod import POD_TEMPLATE
from app.api.jsonvalue import json_copy
from app.kube.client import Client
from app.kube.fielderrors import FieldError, Path, not_supported, required
from app.kube.patches import same
from app.pods.template_check import template_errors

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
