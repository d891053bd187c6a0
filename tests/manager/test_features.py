"""The list of features, and errors in their declarations."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from prometheus_client import CollectorRegistry

from app.admission.policies import WebhookPolicies, apply_to_handlers
from app.api.kind import find_kind, register
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.webhooks import MUTATE, VALIDATE
from app.framework.feature import AdmissionContext, AdmissionPart, Decisions, Feature, is_on
from app.framework.options import Flag, Gate
from app.framework.watched import Stores
from app.kube.admission import Allowed, GroupVersionKind, GroupVersionResource, Handler, Operation, Review, Webhook
from app.manager import features, flags, gates, webhook_handlers
from tests import openkruise
from tests.kit.virtualtime import VirtualClock


def test_each_kind_is_registered_for_conversion_once() -> None:
    kinds = features.kinds()
    assert len(kinds) == len({kind.crd_name for kind in kinds})
    assert all(find_kind(f"{kind.group}/v1", kind.kind) is kind for kind in kinds)
    with pytest.raises(ValueError, match="defined by two features"):
        register([replace(CLONE_SET)])


@pytest.mark.behaviour("MGR-41")
def test_webhooks_have_the_names_and_paths_of_openkruise() -> None:
    ours = {one.name: one.path for one in webhook_handlers.declarations()}
    theirs = {
        one["name"]: one["clientConfig"]["service"]["path"]
        for configuration in openkruise.installed()
        for one in configuration.get("webhooks", ())
    }
    assert len(theirs) == 37
    assert theirs.items() <= ours.items()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (Feature("s", gates=("NoSuchGate",)), "OpenKruise has no feature gate NoSuchGate: declare it"),
        (
            Feature("s", admission=(AdmissionPart(lambda _: Decisions(), gates=("NoSuchGate",)),)),
            "OpenKruise has no feature gate NoSuchGate: declare it",
        ),
        (Feature("s", gates=(Gate("Ours", "a"), Gate("Ours", "b"))), "feature gate Ours: declared twice"),
    ],
)
def test_an_unknown_gate_is_refused(declared: Feature, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "features", lambda: (declared,))
    with pytest.raises(ValueError, match=message):
        gates._gates()


@pytest.mark.parametrize(
    ("declared", "answered", "message"),
    [
        ((MUTATE, VALIDATE), (MUTATE,), "webhook vcloneset.kb.io: no handler; return one from the part's make"),
        ((MUTATE,), (MUTATE, VALIDATE), "webhook vcloneset.kb.io: not declared; add it to the part's webhooks"),
    ],
)
def test_webhooks_and_handlers_must_match(
    declared: tuple[Webhook, ...], answered: tuple[Webhook, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Decisions([Handler(one, lambda _review: Allowed()) for one in answered])
    feature = Feature("s", admission=(AdmissionPart(lambda _: made, webhooks=declared),))
    monkeypatch.setattr(webhook_handlers, "features", lambda: (feature,))
    with pytest.raises(ValueError, match=message):
        webhook_handlers.build_handlers(lambda _: admission_context())


def test_parts_that_declare_guarded_pods_have_a_guard() -> None:
    for part in (part for one in features.features() for part in one.admission):
        made = part.make(replace(admission_context(), stores=Stores((*part.watched, *part.files))))
        assert bool(made.guards) == bool(part.guarded)


def test_a_slow_handler_stays_slow_behind_gates_and_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Decisions([Handler(VALIDATE, lambda _review: Allowed(), lambda _review: True)])
    feature = Feature("s", admission=(AdmissionPart(lambda _: made, webhooks=(VALIDATE,), gates=("WorkloadSpread",)),))
    monkeypatch.setattr(webhook_handlers, "features", lambda: (feature,))
    built = webhook_handlers.build_handlers(lambda _: admission_context())
    (found,) = (one for one in apply_to_handlers(built, WebhookPolicies(), "ours") if one.webhook.name == VALIDATE.name)
    group, version, kind = CLONE_SET.group, CLONE_SET.hub.name, CLONE_SET.kind
    asked = (GroupVersionKind(group, version, kind), GroupVersionResource(group, version, CLONE_SET.plural))
    assert found.is_slow(Review("u", Operation.CREATE, *asked))


def admission_context() -> AdmissionContext:
    clock = VirtualClock()
    return AdmissionContext(
        client=None,
        stores=Stores(()),
        events=None,
        clock=clock,
        rng=Random(1),
        own_namespace="kruise-system",
        enabled=gates.parse_gates("").enabled,
        flags=flags.parse_flags(()),
        counters=lambda make: make(CollectorRegistry()),
    )


def test_an_unknown_flag_is_refused_and_flags_of_openkruise_take_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "features", lambda: (Feature("s", flags=("no-such-flag",)),))
    with pytest.raises(ValueError, match="OpenKruise has no flag --no-such-flag: feature s must declare it"):
        flags._all_flags()
    own = Flag("ours", "x", str, "ours")
    monkeypatch.setattr(flags, "features", lambda: (Feature("s", flags=("sync-period", own)),))
    found = flags._all_flags()
    assert found["ours"] is own
    assert found["sync-period"].meaningful
    assert not found["pprof-addr"].meaningful


@pytest.mark.parametrize(("named", "on", "exists"), [((), "", True), (("A",), "", False), (("A", "B"), "B", True)])
def test_a_part_exists_if_one_of_its_gates_is_on(named: tuple[str, ...], on: str, exists: bool) -> None:
    assert is_on(named, lambda gate: gate == on) is exists
