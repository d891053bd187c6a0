"""The sets that apply to a Pod, by namespace and labels, and their index."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.sidecarset.injection.selection import MAX_EXPECTED, SidecarSetIndex, in_scope, need_namespace_labels
from tests.features.admitting import Json, World, pod, sidecarset
from tests.fuzz.objects import nested
from tests.kube.test_selectors import label_maps, selectors

NAME = "kubernetes.io/metadata.name"


def one(name: str, selector: Any = None, namespaces: Any = None, **more: Any) -> Json:
    obj = sidecarset(name, {"name": f"c-{name}"}, **more)
    obj["spec"]["selector"] = {"matchLabels": {"app": "web"}} if selector is None else selector
    if namespaces is not None:
        obj["spec"]["namespaceSelector"] = namespaces
    return obj


def names_of(index: SidecarSetIndex, namespace: str, labels: dict[str, str]) -> list[str]:
    """Return the names of the sets that apply if the namespace has its name label and env=prod."""
    return [s.name for s in in_scope(index.candidates(namespace, labels), {NAME: namespace, "env": "prod"})]


@pytest.mark.behaviour("SS-36", "SS-39")
@pytest.mark.parametrize(
    ("namespaces", "needed"),
    [
        (None, False),
        ({"matchLabels": {NAME: "shop"}}, False),
        ({"matchExpressions": [{"key": NAME, "operator": "In", "values": ["shop", "lab"]}]}, False),
        ({"matchLabels": {NAME: "shop", "env": "prod"}}, True),
        ({"matchLabels": {"env": "prod"}}, True),
        ({"matchExpressions": [{"key": NAME, "operator": "NotIn", "values": ["lab"]}]}, True),
    ],
)
def test_namespace_labels_are_read_only_if_the_name_does_not_decide(namespaces: Any, needed: bool) -> None:
    index = SidecarSetIndex()
    index.update(one("s", namespaces=namespaces))
    candidates = index.candidates("shop", {"app": "web"})
    assert need_namespace_labels(candidates) is needed
    assert bool(in_scope(candidates, None)) is not needed


@pytest.mark.behaviour("SS-38", "SS-39")
def test_paused_and_terminating_sets_match_nothing_until_resumed() -> None:
    index = SidecarSetIndex()
    index.update(one("s", injectionStrategy={"paused": True}))
    assert names_of(index, "shop", {"app": "web"}) == []
    index.update(one("s"))
    assert names_of(index, "shop", {"app": "web"}) == ["s"]
    index.update(one("s", metadata={"deletionTimestamp": "2026-11-21T03:10:17Z"}))
    assert names_of(index, "shop", {"app": "web"}) == []


@pytest.mark.behaviour("SS-77")
@pytest.mark.parametrize("how", ["paused", "other namespace", "not said to be one"])
def test_an_inapplicable_canary_leaves_its_base_active(how: str) -> None:
    annotations = {"apps.kruise.io/sidecarset-canary": "true", "apps.kruise.io/sidecarset-base": "s"}
    changes: dict[str, Any] = {"annotations": annotations}
    if how == "paused":
        changes["injectionStrategy"] = {"paused": True}
    elif how == "other namespace":
        changes["namespaces"] = {"matchLabels": {"env": "dev"}}
    else:
        annotations["apps.kruise.io/sidecarset-canary"] = "false"
        changes["selector"] = {"matchLabels": {"app": "db"}}
    assert World().apply(one("s"), one("s-c", **changes)).create(pod()).containers == ["c-s", "main"]


@pytest.mark.behaviour("SS-39", "SS-35")
def test_a_namespace_missing_in_the_cache_is_read_live() -> None:
    world = World(stale=True).apply(one("s", namespaces={"matchLabels": {"env": "prod"}}))
    assert world.create(pod()).containers == ["c-s", "main"]
    assert world.live_reads == ["namespace shop"]
    assert world.create(pod(metadata={"namespace": "gone"})).operations == []


def written(name: str, generation: int, image: str = "i") -> Json:
    return sidecarset(name, {"name": "c", "image": image}, metadata={"uid": f"uid-{name}", "generation": generation})


FOREVER = float("inf")


@pytest.mark.behaviour("SS-39")
def test_a_newly_admitted_set_is_read_live_until_cached() -> None:
    world = World(live_sets={"s": written("s", 1)})
    world.index.expect("s", "uid-s", 1, FOREVER)
    assert world.create(pod()).containers == ["c", "main"]
    assert world.live_reads == ["sidecarsets s"]
    # It is in the index now, so nothing is read.
    assert world.create(pod()).containers == ["c", "main"]
    assert world.live_reads == ["sidecarsets s"]


@pytest.mark.behaviour("SS-39", "MGR-62")
def test_a_newly_admitted_change_is_read_live() -> None:
    world = World(live_sets={"s": written("s", 2, "new")}).apply(written("s", 1, "old"))
    world.index.expect("s", "uid-s", 1, FOREVER)  # only labels or annotations changed: the content is known
    assert world.create(pod()).container("c")["image"] == "old"
    world.index.expect("s", "uid-s", 2, FOREVER)
    assert world.create(pod()).container("c")["image"] == "new"
    assert world.live_reads == ["sidecarsets s"]


@pytest.mark.behaviour("SS-39")
def test_a_set_that_was_not_stored_is_read_for_a_limited_time() -> None:
    world = World()
    world.index.expect("s", "uid-s", 1, FOREVER)
    world.index.expect("long-ago", "uid", 1, 0.0)
    assert world.create(pod()).containers == ["main"]
    assert world.live_reads == ["sidecarsets s"]
    world.index.expect("s", "uid-s", 1, 0.0)
    assert world.create(pod()).containers == ["main"]
    assert world.live_reads == ["sidecarsets s"]


class Meanwhile(float):
    """A time that adds a set to the index when it is compared, as another thread could at that moment."""

    index: SidecarSetIndex

    def __ge__(self, other: Any) -> bool:
        self.index.expect("meanwhile", "uid", 1, FOREVER)
        return float(self) >= other

    def __lt__(self, other: Any) -> bool:
        self.index.expect("meanwhile", "uid", 1, FOREVER)
        return float(self) < other


@pytest.mark.behaviour("SS-39", "MGR-149")
def test_a_set_admitted_in_parallel_is_not_forgotten() -> None:
    """Large sets are validated in a thread, which may record them between any two steps of the event loop."""
    index = SidecarSetIndex()
    index.expect("one", "uid", 1, FOREVER)
    index.expect("over", "uid", 1, 0.5)
    now = Meanwhile(1.0)
    now.index = index
    assert index.behind(now) == ["one", "meanwhile"]


@pytest.mark.behaviour("SS-39", "MGR-154")
def test_forged_sets_delay_no_pod_of_a_known_caller_and_displace_no_set() -> None:
    index = SidecarSetIndex()
    for number in range(2 * MAX_EXPECTED):
        index.expect(f"forged-{number}", "uid", 1, FOREVER, stranger="10.0.0.9")
    index.expect("other", "uid", 1, 1.0, stranger="10.0.0.1")
    index.expect("forged-0", "uid", 2, 1.0)
    index.expect("s", "uid", 1, FOREVER)
    assert index.behind(0.0) == ["forged-0", "s"]
    assert index.behind(2.0) == ["s"]
    assert "other" in index.behind(0.0, stranger=True)
    assert len(index.behind(2.0, stranger=True)) == MAX_EXPECTED + 1


def test_an_invalid_uid_is_not_remembered() -> None:
    index = SidecarSetIndex()
    index.expect("s", "u" * 1_000, 1, FOREVER)
    assert index.behind(0.0) == []


def test_an_unreadable_set_matches_nothing_with_a_reason_and_is_read_once() -> None:
    index = SidecarSetIndex()
    assert index.update(one("s")) is not None
    near = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    assert index.update(one("s", near, metadata={"uid": "uid-s", "generation": 2})) is None
    assert index.shows("s", "uid-s", 2)
    assert names_of(index, "shop", {"app": "web"}) == []
    assert list(index.unusable) == ["s"]
    assert index.unusable["s"].startswith("SidecarSet s: spec.selector: ")
    index.update(one("s"))
    assert dict(index.unusable) == {}


AVERAGE = {"targetContainersMode": "avg", "resourcesExpr": {"limits": {"cpu": "1"}}}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"initContainers": [{"name": "x"}, {"name": "x"}]}, "spec: container name x is used twice; rename one"),
        ({"containers": [{"name": "x", "resourcesPolicy": AVERAGE}]}, "container x: resourcesPolicy.targetContainersM"),
    ],
)
def test_pods_of_an_uninjectable_set_do_not_start_without_sidecars(spec: Json, reason: str) -> None:
    obj = one("s")
    obj["spec"].update(spec)
    world = World().apply(obj)
    answer = world.create(pod())
    assert answer.refusal.message.startswith(f"SidecarSet s: {reason}")
    assert answer.refusal.message.endswith("cannot be created until it is fixed or injectionStrategy.paused is true")
    assert [name for name, _ in world.reported] == ["s"]
    assert world.create(pod(labels={"app": "db"})).denied is None


@pytest.mark.behaviour("SS-130")
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"containers": "x"}, "spec.containers: expected array, found string"),
        ({"containers": ["x"]}, "spec.containers[0]: expected object, found string"),
        ({"containers": [None]}, "spec.containers[0]: expected an object"),
        ({"containers": [{"image": "x"}]}, "spec.containers[0].name: expected a string"),
        (
            {"containers": [{"name": "x", "env": [{"name": "A", "valueFrom": "x"}]}]},
            "spec.containers[0].env[0].valueFrom",
        ),
        ({"containers": [{"name": "x", "shareVolumePolicy": "yes"}]}, "spec.containers[0].shareVolumePolicy: expected"),
        ({"containers": [{"name": "x", "deep": nested(300)}]}, "spec.containers[0].deep.x.x"),
        ({"volumes": {"name": "v"}}, "spec.volumes: expected array, found object"),
        ({"patchPodMetadata": [{"annotations": {"k": 1}}]}, "spec.patchPodMetadata[0].annotations[k]: expected string"),
    ],
)
def test_a_mistyped_set_is_skipped_and_the_others_inject(spec: Json, reason: str) -> None:
    malformed = one("malformed")
    malformed["spec"].update(spec)
    world = World().apply(sidecarset("s", {"name": "shipper", "image": "x"}), malformed)
    assert world.create(pod()).containers == ["shipper", "main"]
    assert world.index.unusable["malformed"].startswith(f"SidecarSet malformed: {reason}")
    world.apply(one("malformed"))
    assert world.index.unusable == {}


def test_a_status_update_does_not_prepare_a_set_again() -> None:
    index = SidecarSetIndex()
    obj = one("s", metadata={"generation": 1, "uid": "u"}, status={"matchedPods": 1})
    first = index.update(obj)
    assert index.update({**obj, "status": {"matchedPods": 2}}) is first
    assert index.update({**obj, "status": {"latestRevision": "s-1"}}) is not first
    again = index.get("s")
    assert index.update({**obj, "metadata": {**obj["metadata"], "generation": 2}}) is not again


SCOPE = st.one_of(
    st.none(),
    st.builds(
        lambda values: {"matchExpressions": [{"key": NAME, "operator": "In", "values": values}]},
        st.lists(st.sampled_from(["shop", "lab"]), min_size=1, unique=True),
    ),
    st.just({"matchLabels": {"env": "prod"}}),
)


@pytest.mark.behaviour("SS-35", "SS-36", "SS-37")
@given(
    changes=st.lists(st.tuples(st.sampled_from("abcde"), st.none() | st.tuples(selectors, SCOPE)), max_size=12),
    labels=label_maps,
    namespace=st.sampled_from(["shop", "lab"]),
)
def test_the_index_agrees_with_a_full_scan(
    changes: list[tuple[str, tuple[Json, Any] | None]], labels: dict[str, str], namespace: str
) -> None:
    index = SidecarSetIndex()
    present: dict[str, Json] = {}
    for name, change in changes:
        if change is None:
            index.remove(name)
            present.pop(name, None)
        else:
            present[name] = one(name, *change)
            index.update(present[name])
    here, everywhere = [], []
    for name in sorted(present):
        prepared = index.get(name)
        assert prepared is not None
        namespace_labels = {NAME: namespace, "env": "prod"}
        scope = prepared.namespace_selector
        if prepared.selector is None or not prepared.selector.matches(labels):
            continue
        if scope is None or scope.matches(namespace_labels):
            (here if prepared.namespaces else everywhere).append(name)
    assert names_of(index, namespace, labels) == here + everywhere
