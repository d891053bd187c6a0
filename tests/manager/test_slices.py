"""The list of slices, and mistakes in what a slice declares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.api import registry
from app.api.cloneset import CLONE_SET
from app.manager import flags, gates, slices
from app.slices import Flag, Gate, Slice
from app.slices.slice import is_on


def test_each_kind_is_known_once_to_conversion() -> None:
    kinds = slices.kinds()
    assert len(kinds) == len({kind.crd_name for kind in kinds})
    assert all(registry.find_kind(f"{kind.group}/v1", kind.kind) is kind for kind in kinds)
    with pytest.raises(ValueError, match="two slices have a kind of this name"):
        registry.register([replace(CLONE_SET)])


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (Slice("s", gates=("NoSuchGate",)), "OpenKruise has no feature gate NoSuchGate: declare it"),
        (Slice("s", gates=(Gate("Ours", "a"), Gate("Ours", "b"))), "feature gate Ours: is declared twice"),
    ],
)
def test_a_gate_that_nobody_has_is_a_mistake(declared: Slice, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "slices", lambda: (declared,))
    with pytest.raises(ValueError, match=message):
        gates._gates()


def test_a_flag_that_nobody_has_is_a_mistake_and_one_of_openkruise_gets_an_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flags, "slices", lambda: (Slice("s", flags=("no-such-flag",)),))
    with pytest.raises(ValueError, match="OpenKruise has no flag --no-such-flag: slice s must declare it"):
        flags._all_flags()
    own = Flag("ours", "x", str, "ours")
    monkeypatch.setattr(flags, "slices", lambda: (Slice("s", flags=("sync-period", own)),))
    found = flags._all_flags()
    assert found["ours"] is own
    assert found["sync-period"].meaningful
    assert not found["pprof-addr"].meaningful


@pytest.mark.parametrize(("named", "on", "exists"), [((), "", True), (("A",), "", False), (("A", "B"), "B", True)])
def test_a_part_exists_if_one_of_its_gates_is_on(named: tuple[str, ...], on: str, exists: bool) -> None:
    assert is_on(named, lambda gate: gate == on) is exists
