"""Webhook handlers by path, and declarations that share a webhook name. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.kube.admission import Allowed, Decision, Denied, Handler, Operation, Review, Rule, Webhook

_Key: TypeAlias = tuple[Operation, str, str, str, str]
_VERSIONED = re.compile(r"^/(mutate|validate)-(apps|policy)-kruise-io-(?!v1)(?P<kind>[a-z]+)$")


class DuplicateRuleError(ValueError):
    """Two handlers for one path match the same requests."""


@dataclass(frozen=True, slots=True)
class Route:
    """A served path and its handlers by operation and resource."""

    path: str
    handlers: Mapping[_Key, Handler]
    known_resources: frozenset[tuple[str, str, str]]
    unknown_passes: bool = False

    def handler_for(self, review: Review) -> Handler | Allowed | Denied:
        """Return the handler for this review, or the decision if there is none.

        Operations and subresources without a handler are allowed. An unknown resource or version indicates a wrong
        registration, so its reviews are denied unless all webhooks of the path set ``unknown_passes``. [PW-22, DP-1,
        DP-7, SS-108]
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
        return Denied(f"request.resource: {asked} is not served at {self.path}, which serves {served}", code=400)


@dataclass(frozen=True, slots=True)
class Registry:
    """All routes of a process and the declarations they were built from."""

    webhooks: tuple[Webhook, ...]
    routes: Mapping[str, Route]
    aliases: Mapping[str, str]
    #: Paths whose feature gates are off. A replica with other gates may have registered them, so reviews sent to them
    #: are allowed.
    switched_off: frozenset[str] = frozenset()


def served(webhooks: Iterable[Webhook], gate_enabled: Callable[[str], bool]) -> tuple[Webhook, ...]:
    """Return the declarations whose feature gates are on. [PW-4, MGR-43]"""
    return tuple(webhook for webhook in webhooks if is_served(webhook, gate_enabled))


def is_served(webhook: Webhook, gate_enabled: Callable[[str], bool]) -> bool:
    """Return whether the feature gates of a webhook are on."""
    return (not webhook.gate or gate_enabled(webhook.gate)) and (
        not webhook.gates or any(map(gate_enabled, webhook.gates))
    )


def build_registry(handlers: Iterable[Handler], gate_enabled: Callable[[str], bool]) -> Registry:
    """Build the routes of all handlers whose feature gates are on.

    Raises DuplicateRuleError if two handlers for one path match the same requests.
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
                raise DuplicateRuleError(f"{both} both handle {key[0]} {key[3]} at {handler.webhook.path}")
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
    """Return the versioned paths under which older charts registered a path. [MGR-122]"""
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


# Declarations that share a webhook name become one entry and one handler. For example, a kind's package validates the
# kind and deletion protection guards it. OpenKruise has one webhook for both, and users see its name in denials.
# [CS-173]


def merged_webhooks(webhooks: Iterable[Webhook]) -> tuple[Webhook, ...]:
    """Return one declaration per name, ordered by the first occurrence of each name.

    Raises DuplicateRuleError if declarations with the same name cannot be merged.
    """
    found: dict[str, Webhook] = {}
    for webhook in webhooks:
        known = found.get(webhook.name)
        found[webhook.name] = webhook if known is None else _joined(known, webhook)
    return tuple(found.values())


def merged_handlers(handlers: Iterable[Handler]) -> tuple[Handler, ...]:
    """Merge handlers whose declarations share a name. Each handler still sees only requests that match its rules."""
    by_name: dict[str, list[Handler]] = {}
    for handler in handlers:
        by_name.setdefault(handler.webhook.name, []).append(handler)
    return tuple(group[0] if len(group) == 1 else _merged_handler(group) for group in by_name.values())


def _merged_handler(group: Sequence[Handler]) -> Handler:
    (webhook,) = merged_webhooks(handler.webhook for handler in group)

    def matching(review: Review) -> Handler | None:
        return next((one for one in group if any(rule.matches(review) for rule in one.webhook.rules)), None)

    def decide(review: Review) -> Decision | Awaitable[Decision]:
        handler = matching(review)
        return handler.decide(review) if handler is not None else Allowed()

    def is_slow(review: Review) -> bool:
        handler = matching(review)
        return handler is not None and handler.is_slow(review)

    return Handler(webhook, decide, is_slow)


def _joined(first: Webhook, second: Webhook) -> Webhook:
    same = dataclasses.replace(
        second,
        rules=first.rules,
        summary=first.summary,
        match_conditions=first.match_conditions,
        permissions=first.permissions,
    )
    # Fields that apply to the whole entry must be equal. A declaration limits its own rules with match conditions.
    if same != first:
        raise DuplicateRuleError(f"two declarations of {first.name} cannot be merged into one webhook")
    return dataclasses.replace(
        first,
        rules=_merged_rules(first.rules, second.rules),
        summary=f"{first.summary}; {second.summary[:1].lower()}{second.summary[1:]}",
        match_conditions=(*first.match_conditions, *second.match_conditions),
        permissions=(*first.permissions, *second.permissions),
    )


def _merged_rules(first: tuple[Rule, ...], second: tuple[Rule, ...]) -> tuple[Rule, ...]:
    rules = list(first)
    for rule in second:
        for index, known in enumerate(rules):
            if _subject(known) == _subject(rule):
                operations = tuple(dict.fromkeys((*known.operations, *rule.operations)))
                rules[index] = dataclasses.replace(known, operations=operations)
                break
        else:
            rules.append(rule)
    return tuple(rules)


def _subject(rule: Rule) -> tuple[object, ...]:
    return frozenset(rule.groups), frozenset(rule.versions), frozenset(rule.resources), rule.scope
