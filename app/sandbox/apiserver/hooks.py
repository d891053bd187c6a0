"""Webhooks as they are registered: which of them a write concerns, decided from data alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from app.kube.selectors import Selector, compile_selector
from app.sandbox.apiserver.attributes import Attributes
from app.sandbox.apiserver.cel import CelError, compiled
from app.sandbox.apiserver.core import Core
from app.sandbox.apiserver.kinds import ResourceType

Json: TypeAlias = dict[str, Any]

MUTATING: Final = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VALIDATING: Final = "validatingwebhookconfigurations.admissionregistration.k8s.io"
_OWN_GROUP: Final = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of a configuration."""

    configuration: str
    name: str
    raw: Mapping[str, Any]
    namespaces: Selector
    objects: Selector

    @property
    def ignores_failure(self) -> bool:
        """Whether a call that fails lets the write pass."""
        return self.raw.get("failurePolicy") == "Ignore"

    @property
    def seconds(self) -> int:
        """How long a call may take."""
        return int(self.raw.get("timeoutSeconds") or 10)

    @property
    def reinvocable(self) -> bool:
        """Whether it is asked again when others changed the object after it."""
        return self.raw.get("reinvocationPolicy") == "IfNeeded"


@dataclass(frozen=True, slots=True)
class Invocation:
    """A hook that is to be called, with the resource its rule names (which may be another version)."""

    hook: Hook
    resource: ResourceType


def hooks_of(core: Core, collection: str) -> Hooks:
    """All webhooks of one kind of configuration, in the order they are called: by the configurations' names."""
    found = []
    for entry in core.named(collection).select(""):
        for raw in entry.obj.get("webhooks") or ():
            found.append(
                Hook(
                    configuration=entry.key,
                    name=raw["name"],
                    raw=raw,
                    namespaces=compile_selector(raw.get("namespaceSelector")),
                    objects=compile_selector(raw.get("objectSelector")),
                )
            )
    return Hooks(tuple(found))


def matching(core: Core, hook: Hook, attributes: Attributes) -> Invocation | None:
    """The call a write asks for, or None. Match conditions are left to :func:`conditions_hold`."""
    resource = attributes.resource
    if resource.group == _OWN_GROUP and resource.plural.endswith("webhookconfigurations"):
        return None  # nobody could repair a configuration that stands in its own way
    rules = hook.raw.get("rules") or ()
    rows = core.registry.versions_of(resource) if hook.raw.get("matchPolicy") != "Exact" else (resource,)
    row = next((row for row in rows if any(_rule_matches(rule, attributes, row) for rule in rules)), None)
    if row is None:
        return None
    if not any(_selects(hook.objects, obj) for obj in (attributes.obj, attributes.old) if obj is not None):
        return None
    return Invocation(hook, row) if _namespace_selected(core, hook, attributes) else None


class Hooks:
    """The webhooks of one kind of configuration. Nearly every write is none of their business, known at once."""

    def __init__(self, all_: tuple[Hook, ...] = ()) -> None:
        self.all = all_
        #: What rules look at → the versions of the resource then, and the hooks of which some rule fits.
        self._known: dict[tuple[str, str, str, str, bool], tuple[tuple[ResourceType, ...], tuple[Hook, ...]]] = {}

    def for_write(self, core: Core, attributes: Attributes) -> tuple[Hook, ...]:
        """Those whose rules speak of such a write of such a resource, whatever its name; :func:`matching` decides."""
        resource = attributes.resource
        rows = core.registry.versions_of(resource)
        key = (
            attributes.operation,
            resource.api_version,
            resource.plural,
            attributes.subresource,
            bool(attributes.namespace),
        )
        known = self._known.get(key)
        if known is None or known[0] is not rows:
            known = self._known[key] = (rows, tuple(hook for hook in self.all if _rules_cover(hook, attributes, rows)))
        return known[1]


def _rules_cover(hook: Hook, attributes: Attributes, rows: Sequence[ResourceType]) -> bool:
    return any(_rule_covers(rule, attributes, row) for rule in hook.raw.get("rules") or () for row in rows)


def _rule_matches(rule: Mapping[str, Any], attributes: Attributes, row: ResourceType) -> bool:
    names = rule.get("resourceNames")
    return (not names or attributes.name in names) and _rule_covers(rule, attributes, row)


def _rule_covers(rule: Mapping[str, Any], attributes: Attributes, row: ResourceType) -> bool:
    operations = rule.get("operations") or ()
    if "*" not in operations and attributes.operation not in operations:
        return False
    for wanted, actual in ((rule.get("apiGroups"), row.group), (rule.get("apiVersions"), row.version)):
        if "*" not in (wanted or ()) and actual not in (wanted or ()):
            return False
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") is not bool(attributes.namespace and row.plural != "namespaces"):
        return False
    return any(_resource_matches(text, row.plural, attributes.subresource) for text in rule.get("resources") or ())


def _resource_matches(text: str, plural: str, subresource: str) -> bool:
    wanted, _, below = text.partition("/")
    return wanted in ("*", plural) and (below == subresource or below == "*" or (text == "*" and not subresource))


def _selects(selector: Selector, obj: Mapping[str, Any]) -> bool:
    return selector.empty or selector.matches((obj.get("metadata") or {}).get("labels") or {})


def _namespace_selected(core: Core, hook: Hook, attributes: Attributes) -> bool:
    if hook.namespaces.empty:
        return True
    if attributes.resource.plural == "namespaces" and not attributes.resource.group:
        if attributes.operation in ("CREATE", "UPDATE") and not attributes.subresource:
            return _selects(hook.namespaces, attributes.obj or {})
        name = attributes.name
    elif not attributes.namespace:
        return True
    else:
        name = attributes.namespace
    entry = core.named("namespaces").objects.get(name)
    return entry is not None and hook.namespaces.matches(entry.labels)


def conditions_hold(hook: Hook, variables: Mapping[str, Any]) -> bool:
    """Whether all match conditions are true. Raises :class:`CelError` where one fails and failures count."""
    errors: list[str] = []
    for condition in hook.raw.get("matchConditions") or ():
        try:
            if compiled(condition["expression"]).evaluate(variables) is False:
                return False
        except CelError as error:
            errors.append(str(error))
    if errors and not hook.ignores_failure:
        raise CelError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    return not errors


def variables_of(attributes: Attributes, request: Json) -> dict[str, Any]:
    """What match conditions may speak of."""
    return {"object": attributes.obj, "oldObject": attributes.old, "request": request}


def client_config(raw: Mapping[str, Any]) -> tuple[str, str, Sequence[str]]:
    """URL, CA bundle and review versions of a hook; a Service is a URL of its cluster name."""
    config = raw.get("clientConfig") or {}
    service = config.get("service")
    url = config.get("url") or ""
    if service is not None:
        path = (service.get("path") or "").lstrip("/")
        url = f"https://{service['name']}.{service['namespace']}.svc:{service.get('port') or 443}/{path}"
    return url, config.get("caBundle") or "", raw.get("admissionReviewVersions") or ()
