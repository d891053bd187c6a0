"""Several declarations under one webhook name: one entry of the configuration, one handler. Pure.

A kind of ours is judged by its own domain where it is written, and by deletion protection where it is deleted.
OpenKruise has one webhook for both, and its name is what people see in refusals (CS-173).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Iterable, Sequence

from app.admission.registry import DuplicateRuleError
from app.kube.admission import Allowed, Decide, Decision, Handler, Review, Rule, Webhook


def merged_webhooks(webhooks: Iterable[Webhook]) -> tuple[Webhook, ...]:
    """One declaration per name, in the order in which names come first.

    Raises DuplicateRuleError for declarations of one name that cannot be one entry.
    """
    found: dict[str, Webhook] = {}
    for webhook in webhooks:
        known = found.get(webhook.name)
        found[webhook.name] = webhook if known is None else _joined(known, webhook)
    return tuple(found.values())


def merged_handlers(handlers: Iterable[Handler]) -> tuple[Handler, ...]:
    """The same for declarations joined with their functions: each answers for what its own rules name."""
    by_name: dict[str, list[Handler]] = {}
    for handler in handlers:
        by_name.setdefault(handler.webhook.name, []).append(handler)
    return tuple(group[0] if len(group) == 1 else _merged_handler(group) for group in by_name.values())


def _merged_handler(group: Sequence[Handler]) -> Handler:
    (webhook,) = merged_webhooks(handler.webhook for handler in group)
    return Handler(webhook, _by_rules(group))


def _by_rules(group: Sequence[Handler]) -> Decide:
    def decide(review: Review) -> Decision | Awaitable[Decision]:
        for handler in group:
            if any(rule.matches(review) for rule in handler.webhook.rules):
                return handler.decide(review)
        return Allowed()

    return decide


def _joined(first: Webhook, second: Webhook) -> Webhook:
    same = dataclasses.replace(
        second,
        rules=first.rules,
        summary=first.summary,
        match_conditions=first.match_conditions,
        permissions=first.permissions,
    )
    # What the API server tests for the whole entry must be meant by both; what only one means is a match condition.
    if same != first:
        raise DuplicateRuleError(f"two declarations of {first.name} cannot be one webhook")
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
