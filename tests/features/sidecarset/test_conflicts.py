"""Conflicts between SidecarSets, and canaries with their base."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from app.features.sidecarset.conflicts import overlap
from app.features.sidecarset.injection.selection import RecentSets, SidecarSetIndex
from app.features.sidecarset.types import SidecarSet
from app.features.sidecarset.webhooks import handlers, read
from app.kube.admission import Denied
from app.kube.clock import SystemClock
from app.kube.selectors import compile_selector
from tests.admission.writing import ALPHA, decided
from tests.features.writing import Lookups, review, sidecar_set, write
from tests.kube.test_selectors import label_maps, selectors


def others(*sets: dict[str, Any]) -> Lookups:
    return Lookups([read(found) for found in sets])


def refusal(obj: dict[str, Any], *sets: dict[str, Any], old: dict[str, Any] | None = None) -> str:
    return write(obj, old, others(*sets)).message


def brings(name: str, *containers: str, init: tuple[str, ...] = (), hot: tuple[str, ...] = (), **spec: Any) -> Any:
    upgrade = {"upgradeStrategy": {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "empty:1"}}
    return sidecar_set(
        name,
        containers=[
            *({"name": found, "image": "i:1"} for found in containers),
            *({"name": found, "image": "i:1", **upgrade} for found in hot),
        ],
        initContainers=[{"name": found, "image": "i:1"} for found in init],
        **spec,
    )


def labels(**pairs: str) -> dict[str, Any]:
    return {"matchLabels": pairs}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    found = {"key": key, "operator": operator, "values": list(values)}
    return {"matchExpressions": [{name: value for name, value in found.items() if value}]}


@pytest.mark.behaviour("SS-30")
@pytest.mark.parametrize(
    ("mine", "theirs", "message"),
    [
        (brings("s", "a"), brings("t", "a"), 'spec.containers: Invalid value: "a": container a'),
        (brings("s", init=("a",)), brings("t", init=("a",)), 'spec.initContainers: Invalid value: "a": container a'),
        (brings("s", "a"), brings("t", "b", init=("b2",)), ""),
        # SS-34: containers and init containers share one name space, which includes the names of twins.
        (brings("s", "a"), brings("t", init=("a",)), 'spec.containers: Invalid value: "a": container a'),
        (brings("s", init=("a",)), brings("t", "a"), 'spec.initContainers: Invalid value: "a": container a'),
        (brings("s", "a-1"), brings("t", hot=("a",)), 'spec.containers: Invalid value: "a-1": container a-1'),
        (brings("s", hot=("a",)), brings("t", "a-2"), 'spec.containers: Invalid value: "a-2": container a-2'),
    ],
)
def test_containers_with_the_same_name_conflict(mine: Any, theirs: Any, message: str) -> None:
    assert refusal(mine, theirs) == (f"{message} already exist in t" if message else "")


@pytest.mark.behaviour("SS-30")
def test_volumes_with_the_same_name_must_be_equal() -> None:
    def with_volume(name: str, **source: Any) -> Any:
        return brings(name, name, volumes=[{"name": "v", **source}])

    assert refusal(with_volume("s", configMap={"name": "a"}), with_volume("t", configMap={"name": "b"})) == (
        'spec.volumes: Invalid value: "v": volume v is in conflict with sidecarset t'
    )
    # Equal once both have defaults.
    assert refusal(with_volume("s"), with_volume("t", emptyDir={})) == ""


@pytest.mark.behaviour("SS-30")
@pytest.mark.parametrize(
    ("mine", "theirs", "clash"),
    [
        ("Overwrite", "Overwrite", True),
        ("Overwrite", "MergePatchJson", True),
        ("MergePatchJson", "Overwrite", True),
        ("MergePatchJson", "MergePatchJson", False),
        ("Overwrite", "Retain", False),
        ("Retain", "Overwrite", False),
        ("Retain", "Retain", False),
    ],
)
def test_annotations_that_one_side_overwrites(mine: str, theirs: str, clash: bool) -> None:
    def patching(name: str, policy: str) -> Any:
        return brings(name, name, patchPodMetadata=[{"annotations": {"k": name}, "patchPolicy": policy}])

    message = 'spec.patchPodMetadata: Invalid value: "k": annotation k is in conflict with sidecarset t'
    assert refusal(patching("s", mine), patching("t", theirs)) == (message if clash else "")


@pytest.mark.behaviour("SS-30", "SS-32")
@pytest.mark.parametrize(
    ("mine", "theirs", "meet"),
    [
        ({}, {}, True),
        ({"selector": labels(a="b")}, {"selector": labels(c="d")}, True),
        ({"selector": labels(a="b")}, {"selector": labels(a="c")}, False),
        ({"selector": labels(a="b")}, {"selector": expression("c", "Exists")}, False),
        ({"namespaceSelector": labels(env="a")}, {}, True),
        ({"namespaceSelector": labels(env="a")}, {"namespaceSelector": labels(env="b")}, False),
    ],
)
def test_only_sets_that_share_a_pod_conflict(mine: Any, theirs: Any, meet: bool) -> None:
    assert bool(refusal(brings("s", "a", **mine), brings("t", "a", **theirs))) is meet
    assert bool(refusal(brings("t", "a", **theirs), brings("s", "a", **mine))) is meet


@pytest.mark.behaviour("SS-30", "SS-1")
def test_a_v1alpha1_set_is_compared_by_its_namespace() -> None:
    mine = {**brings("s", "a", namespace="shop"), "apiVersion": ALPHA}
    for namespace, clash in (("bar", False), ("shop", True)):
        scope = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        assert bool(refusal(mine, brings("t", "a", namespaceSelector=scope))) is clash


@pytest.mark.behaviour("SS-30")
def test_a_set_does_not_conflict_with_itself_or_a_deleted_one() -> None:
    stored = brings("s", "a")
    assert refusal(stored, stored, old=stored) == ""
    leaving = {**brings("t", "a"), "metadata": {"name": "t", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert refusal(stored, leaving) == ""


@pytest.mark.behaviour("SS-30")
def test_conflicts_are_checked_only_for_a_valid_set() -> None:
    wrong = brings("s", "a", updateStrategy={"partition": -1})
    assert "already exist" not in refusal(wrong, brings("t", "a"))


def canary(name: str, of: str, *containers: str, update_type: str = "NotUpdate", says: str = "true") -> Any:
    annotations = {"apps.kruise.io/sidecarset-canary": says, "apps.kruise.io/sidecarset-base": of}
    found = brings(name, *containers, updateStrategy={"type": update_type})
    return {**found, "metadata": {"name": name, "annotations": annotations}}


BASE = "metadata.annotations[apps.kruise.io/sidecarset-base]"


@pytest.mark.behaviour("SS-29")
@pytest.mark.parametrize(
    ("mine", "sets", "message"),
    [
        (canary("c", "c", "a"), [], f'{BASE}: Invalid value: "c": a canary cannot be its own base'),
        (canary("c", "b", "a"), [], f'{BASE}: Invalid value: "b": SidecarSet b not found; create the base first'),
        (canary("c", "b", "x"), [canary("b", "d", "a"), brings("d", "a")],
         f'{BASE}: Invalid value: "b": SidecarSet b is itself a canary; use its base'),
        (canary("c", "b", "a", update_type="RollingUpdate"), [brings("b", "a")],
         'spec.updateStrategy.type: Invalid value: "RollingUpdate": a canary must use NotUpdate: only new Pods get it'),
        (canary("c", "b", "a"), [brings("b", "a")], ""),
        # The second annotation has no effect without the first.
        (canary("c", "nowhere", "a", says="false"), [], ""),
    ],
)  # fmt: skip
def test_invalid_canaries_are_refused(mine: Any, sets: list[Any], message: str) -> None:
    assert refusal(mine, *sets) == message


@pytest.mark.behaviour("SS-29")
def test_a_canary_may_drop_but_not_change_its_base_and_is_editable_after_the_base_is_deleted() -> None:
    stored, bases = canary("c", "b", "a"), [brings("b", "a"), brings("d", "a")]
    message = f'{BASE}: Invalid value: "d": field is immutable; the base is b'
    assert refusal(canary("c", "d", "a"), *bases, old=stored) == message
    assert refusal(brings("c", "a"), old=stored) == ""
    # A canary can be edited after its base was deleted.
    assert refusal(stored, old=stored) == ""


@pytest.mark.behaviour("SS-29")
def test_a_new_base_is_found_despite_a_stale_cache() -> None:
    lookups = Lookups()
    lookups.live_sets["b"] = read(brings("b", "a"))
    assert write(canary("c", "b", "a"), lookups=lookups).obj is not None
    assert write(canary("c", "x", "a"), lookups=lookups).obj is None


@pytest.mark.behaviour("SS-33")
def test_a_canary_and_its_base_never_conflict() -> None:
    base, beside = brings("b", "a"), canary("c", "b", "a")
    assert refusal(beside, base) == ""
    assert refusal(base, beside, old=base) == ""
    assert "already exist in d" in refusal(base, beside, brings("d", "a"), old=base)


def test_conflicts_are_ordered_by_set() -> None:
    found = refusal(brings("s", "a", "b"), brings("z", "a"), brings("m", "b"))
    assert found.index("already exist in m") < found.index("already exist in z")


def test_other_sets_are_read_once_and_may_be_malformed() -> None:
    odd = SidecarSet.model_validate({"metadata": {"name": "odd"}, "spec": {}})
    empty = read(brings("t", "b", patchPodMetadata=[{"patchPolicy": "Overwrite"}]))
    assert write(brings("s", "a"), lookups=Lookups([odd, empty])).obj is not None


@pytest.mark.behaviour("SS-30", "SS-39")
def test_a_new_set_counts_despite_a_stale_cache() -> None:
    lookups = Lookups()
    index = SidecarSetIndex()
    _, validating = handlers(lookups, RecentSets(index, SystemClock()))

    def refusal_of(obj: Any) -> str:
        decision = decided(validating, review(stored(obj)))
        return decision.message if isinstance(decision, Denied) else ""

    def stored(obj: Any) -> Any:
        return {**obj, "metadata": {**obj["metadata"], "uid": obj["metadata"]["name"], "generation": 1}}

    assert refusal_of(brings("s", "a")) == ""
    # Admitted but not stored yet.
    assert refusal_of(brings("t", "a")) == ""
    lookups.live_sets = {name: read(stored(brings(name, "a"))) for name in ("s", "t")}
    assert "already exist in s" in refusal_of(brings("u", "a"))
    assert lookups.asked_sets == ["s", "s", "t"]


# ---- overlapping selectors


@pytest.mark.behaviour("SS-32")
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (labels(a="b"), labels(a="b"), True),
        (labels(a="b"), labels(a="c"), False),
        (labels(a="b"), labels(c="d"), True),
        (labels(a="b"), labels(a="b", c="d"), True),
        (labels(a="b"), expression("a", "In", "b", "c"), True),
        (labels(a="b"), expression("a", "In", "c"), False),
        (labels(a="b"), expression("a", "NotIn", "b"), False),
        (labels(a="b"), expression("a", "NotIn", "c"), True),
        (expression("a", "In", "b", "c"), expression("a", "NotIn", "b"), True),
        (expression("a", "In", "b", "c"), expression("a", "NotIn", "b", "c"), False),
        (labels(a="b"), expression("a", "Exists"), True),
        (labels(a="b"), expression("a", "DoesNotExist"), False),
        (expression("a", "Exists"), expression("a", "In", "b"), True),
        # OpenKruise's quirk is kept: strictly, labels a=b,c=d would match both, and so would a=c below.
        (labels(a="b"), expression("c", "Exists"), False),
        (expression("a", "Exists"), expression("a", "NotIn", "b"), False),
        (labels(a="b"), expression("c", "DoesNotExist"), True),
    ],
)
def test_selectors_overlap_unless_one_key_separates_them(
    first: dict[str, Any], second: dict[str, Any], expected: bool
) -> None:
    assert overlap(first, second) is expected
    assert overlap(second, first) is expected


@pytest.mark.behaviour("SS-32")
@given(selectors, selectors, label_maps)
def test_disjoint_selectors_share_no_object_except_for_the_exists_quirk(
    first: dict[str, Any], second: dict[str, Any], object_labels: dict[str, str]
) -> None:
    both = [*first["matchExpressions"], *second["matchExpressions"]]
    # Excluded: a second In on one key (a union here, an intersection when matching), and Exists, which is the quirk.
    keys = [e["key"] for e in both if e["operator"] == "In"] + [*first["matchLabels"], *second["matchLabels"]]
    if any(e["operator"] == "Exists" for e in both) or len(set(keys)) != len(keys):
        return
    if not overlap(first, second):
        assert not (compile_selector(first).matches(object_labels) and compile_selector(second).matches(object_labels))
