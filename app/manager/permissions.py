"""What the manager itself reads and writes, beside what handlers and controllers declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from app.admission.configurations import MUTATING_NAME, VALIDATING_NAME
from app.kube.admission import PolicyRule, Webhook
from app.kube.resources import LEASES, SELFSUBJECTRULESREVIEWS
from app.manager import callers
from app.manager.gates import GATES
from app.manager.handlers import WEBHOOKS
from app.manager.settings import SECRET_NAME, Settings
from app.manager.slices import kinds, slices
from app.slices import Scope
from app.slices.options import Enabled

_CONFIGURATIONS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_ADMISSION_GROUP: Final = ("admissionregistration.k8s.io",)
_EXTENSIONS_GROUP: Final = ("apiextensions.k8s.io",)
_DEFINITIONS: Final = ("customresourcedefinitions",)

#: The serving certificate. "create" cannot be limited to a name.
_CERTIFICATE: Final = (
    PolicyRule(("create",), ("",), ("secrets",), own_namespace=True),
    PolicyRule(("get", "list", "watch", "update"), ("",), ("secrets",), names=(SECRET_NAME,), own_namespace=True),
)
#: Events, and the question which right is missing (rights.py).
_EVERY_REPLICA: Final = (
    PolicyRule(("create", "patch"), ("",), ("events",)),
    PolicyRule(("create",), (SELFSUBJECTRULESREVIEWS.group,), (SELFSUBJECTRULESREVIEWS.plural,)),
)
#: Leadership; the Lease can be named by a flag. Watched, so that one given back is taken at once.
_LEADERSHIP: Final = (
    PolicyRule(("get", "list", "watch", "create", "patch"), (LEASES.group,), (LEASES.plural,), own_namespace=True),
)


def _registration() -> tuple[PolicyRule, ...]:
    return (
        PolicyRule(("create",), _ADMISSION_GROUP, _CONFIGURATIONS),
        PolicyRule(
            ("get", "list", "watch", "update"),
            _ADMISSION_GROUP,
            _CONFIGURATIONS,
            names=(MUTATING_NAME, VALIDATING_NAME),
        ),
        # A kind without its definition is off.
        PolicyRule(
            ("get", "list", "watch"),
            _EXTENSIONS_GROUP,
            _DEFINITIONS,
            names=tuple(kind.crd_name for kind in kinds()),
        ),
        # caBundle of the conversion webhooks.
        PolicyRule(
            ("patch",),
            _EXTENSIONS_GROUP,
            _DEFINITIONS,
            names=tuple(kind.crd_name for kind in kinds() if len(kind.versions) > 1),
        ),
    )


def _serving() -> tuple[PolicyRule, ...]:
    """MGR-146: what a replica without controllers needs of the certificate and of the definitions."""
    return (
        PolicyRule(("get", "list", "watch"), ("",), ("secrets",), names=(SECRET_NAME,), own_namespace=True),
        PolicyRule(("get",), _EXTENSIONS_GROUP, _DEFINITIONS, names=tuple(kind.crd_name for kind in kinds())),
    )


def _of_manager() -> tuple[PolicyRule, ...]:
    return (*_CERTIFICATE, *_LEADERSHIP, *_registration(), *_EVERY_REPLICA, *_of_webhooks(WEBHOOKS))


def all_rules() -> tuple[PolicyRule, ...]:
    """Everything a manager of this build needs with every gate on, and what it may be granted."""
    return (*_of_manager(), *_of_slices(lambda _gate: True))


def default_rules() -> tuple[PolicyRule, ...]:
    """What a manager of this build needs with every gate at its default."""
    return _needed((*_of_manager(), *_of_slices(_by_default)))


def optional_rules() -> Mapping[str, tuple[PolicyRule, ...]]:
    """Role → what it grants, for those that whoever installs binds where he wants."""
    found: dict[str, tuple[PolicyRule, ...]] = {}
    for rule in dict.fromkeys(all_rules()):
        if rule.optional:
            found[rule.optional] = (*found.get(rule.optional, ()), rule)
    return found


def rules_of_gates() -> Mapping[str, tuple[PolicyRule, ...]]:
    """Gate that is off by default → what a manager needs beside ``default_rules`` where it is on."""
    found: dict[str, tuple[PolicyRule, ...]] = {}
    given = set(default_rules())
    for name, gate in GATES.items():
        if gate.default:
            continue
        of_gate = _needed(_of_slices(lambda asked, name=name: asked == name or _by_default(asked)))  # type: ignore[misc]
        if more := tuple(dict.fromkeys(rule for rule in of_gate if rule not in given)):
            found[name] = more
    return found


def _by_default(gate: str) -> bool:
    return GATES[gate].default


def webhook_rules() -> tuple[PolicyRule, ...]:
    """MGR-146: what a replica of this build needs that only answers reviews."""
    return (*_serving(), *_EVERY_REPLICA, *_of_webhooks(WEBHOOKS), *_of_admission(lambda _gate: True))


def _of_admission(enabled: Enabled) -> tuple[PolicyRule, ...]:
    return tuple(watched.permission for one in slices() for watched in one.watched_for_admission(enabled))


def _of_slices(enabled: Enabled) -> tuple[PolicyRule, ...]:
    return tuple(rule for one in slices() for rule in one.permissions(enabled))


def rules_of(settings: Settings, webhooks: Iterable[Webhook]) -> tuple[PolicyRule, ...]:
    """What one replica needs that serves these webhooks."""
    flags = settings.flags
    reconciles = flags.boolean("controllers")
    of_slices = _of_slices if reconciles else _of_admission
    found = [*_EVERY_REPLICA, *_of_webhooks(webhooks), *of_slices(settings.gates.enabled)]
    found += _registration() if reconciles else _serving()[1:]
    if settings.certificate_folder is None:
        writes = reconciles and not settings.external_certificates
        verbs = ("get", "list", "watch", "update") if writes else ("get", "list", "watch")
        if writes:
            found.append(_CERTIFICATE[0])
        found.append(PolicyRule(verbs, ("",), ("secrets",), names=(settings.secret_name,), own_namespace=True))
    elsewhere = flags.text("leader-election-namespace") != settings.own_namespace
    if reconciles and settings.election is not None and not ("leader-election-namespace" in flags.given and elsewhere):
        found += _LEADERSHIP
    if flags.text("namespace"):
        # These are watched and written in one namespace only, where a Role may be all that is granted.
        found = [rule for rule in found if rule.own_namespace or _kinds_of(rule).isdisjoint(_of_one_namespace())]
    return _needed(found)


def _needed(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    return tuple(rule for rule in rules if not rule.optional)


def _of_one_namespace() -> frozenset[str]:
    """What ``--namespace`` limits: what is watched there, and what is made for Pods that are."""
    everywhere = lambda _gate: True  # noqa: E731
    watched = (one for declared in slices() for one in declared.watched_for_controllers(everywhere))
    return frozenset({"configmaps", *(one.resource.plural for one in watched if one.scope is Scope.WATCHED)})


def _kinds_of(rule: PolicyRule) -> set[str]:
    return {resource.partition("/")[0] for resource in rule.resources}


def _of_webhooks(webhooks: Iterable[Webhook]) -> tuple[PolicyRule, ...]:
    return (callers.PERMISSION, *(rule for webhook in webhooks for rule in webhook.permissions))
