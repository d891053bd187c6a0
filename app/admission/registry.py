"""Which handler answers which review: handlers by path, told apart on one path by their rules. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app.kube.admission import Allowed, Denied, Handler, Operation, Review, Webhook

_Key: TypeAlias = tuple[Operation, str, str, str, str]
_VERSIONED = re.compile(r"^/(mutate|validate)-(apps|policy)-kruise-io-(?!v1)(?P<kind>[a-z]+)$")


class DuplicateRuleError(ValueError):
    """Two handlers of one path claim the same request."""


@dataclass(frozen=True, slots=True)
class Route:
    """One served path: its handlers by what they are asked about."""

    path: str
    handlers: Mapping[_Key, Handler]
    known_resources: frozenset[tuple[str, str, str]]
    unknown_passes: bool = False

    def handler_for(self, review: Review) -> Handler | Allowed | Denied:
        """The handler of this review, or the answer where there is none.

        An operation or subresource nobody asked for passes (PW-22, DP-1); a resource or version that is not served
        here is a registration gone wrong and is refused (SS-108), unless the webhooks of the path let it pass (DP-7).
        """
        resource = review.resource
        handler = self.handlers.get(
            (review.operation, resource.group, resource.version, resource.resource, review.subresource)
        )
        if handler is not None:
            return handler
        if self.unknown_passes or (resource.group, resource.version, resource.resource) in self.known_resources:
            return Allowed()
        asked = f"{resource.resource} of {resource.group or 'the core group'}/{resource.version}"
        served = ", ".join(
            sorted(f"{group}/{version} {plural}".lstrip("/") for group, version, plural in self.known_resources)
        )
        return Denied(f"request.resource: {asked} is not judged at {self.path}, which serves {served}", code=400)


@dataclass(frozen=True, slots=True)
class Registry:
    """All routes of a process and the declarations they came from."""

    webhooks: tuple[Webhook, ...]
    routes: Mapping[str, Route]
    aliases: Mapping[str, str]
    #: Paths whose gates are off. While replicas with other gates run beside us, reviews come here too: they pass.
    switched_off: frozenset[str] = frozenset()


def served(webhooks: Iterable[Webhook], gate_enabled: Callable[[str], bool]) -> tuple[Webhook, ...]:
    """The declarations whose feature gate is on (PW-4, MGR-43)."""
    return tuple(webhook for webhook in webhooks if is_served(webhook, gate_enabled))


def is_served(webhook: Webhook, gate_enabled: Callable[[str], bool]) -> bool:
    """Whether its gates are on."""
    return (not webhook.gate or gate_enabled(webhook.gate)) and (
        not webhook.gates or any(map(gate_enabled, webhook.gates))
    )


def build_registry(handlers: Iterable[Handler], gate_enabled: Callable[[str], bool]) -> Registry:
    """Routes for all handlers whose gate is on.

    Raises DuplicateRuleError when two handlers of one path claim the same request.
    """
    given = tuple(handlers)
    live = [handler for handler in given if is_served(handler.webhook, gate_enabled)]
    by_path: dict[str, dict[_Key, Handler]] = {}
    for handler in live:
        table = by_path.setdefault(handler.webhook.path, {})
        for key in _keys(handler.webhook):
            taken = table.setdefault(key, handler)
            if taken is not handler:
                both = f"{handler.webhook.name} and {taken.webhook.name}"
                raise DuplicateRuleError(f"{both} claim {key[0]} {key[3]} at {handler.webhook.path}")
    routes = {
        path: Route(
            path,
            table,
            frozenset((group, version, plural) for _, group, version, plural, _ in table),
            all(handler.webhook.unknown_passes for handler in table.values()),
        )
        for path, table in by_path.items()
    }
    aliases = {alias: path for path in routes for alias in old_paths(path) if alias not in routes}
    switched_off = frozenset(handler.webhook.path for handler in given) - routes.keys()
    return Registry(tuple(handler.webhook for handler in live), routes, aliases, switched_off)


def old_paths(path: str) -> tuple[str, ...]:
    """The versioned spellings older charts registered a path under (MGR-122)."""
    match = _VERSIONED.match(path)
    if match is None:
        return ()
    verb, group, kind = match.groups()
    return tuple(f"/{verb}-{group}-kruise-io-{version}-{kind}" for version in ("v1alpha1", "v1beta1"))


def _keys(webhook: Webhook) -> Iterable[_Key]:
    for rule in webhook.rules:
        for operation in rule.operations:
            for group in rule.groups:
                for version in rule.versions:
                    for resource in rule.resources:
                        plural, _, subresource = resource.partition("/")
                        yield operation, group, version, plural, subresource
