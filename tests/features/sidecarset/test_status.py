import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api import names
from app.features.sidecarset.injection.metadata import MAX_COMMAS
from app.features.sidecarset.plan.pod_state import PodFacts, is_matched, pod_facts, twins_are_idle, unsettled
from app.features.sidecarset.plan.settings import MAX_SETS, in_place_states, recorded, set_view, with_state
from app.features.sidecarset.plan.status import Counts, PodCounts, status_patch
from app.features.sidecarset.types import SidecarSet
from app.kube.objects import Pod, decode_pod
from app.kube.resources import ObjectKey
from tests.features.sidecarset.rolling_world import hot, sidecar
from tests.kit import objects

DATA = Path(__file__).parent.parent.parent / "data" / "openkruise"
DIGEST = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32
SHOP = {"kubernetes.io/metadata.name": "shop", "env": "prod"}


def sidecar_set(name: str = "s", hash_: str = "h2", **spec: Any) -> SidecarSet:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "containers": [{"name": "shipper", "image": "a:2"}]} | spec
    return SidecarSet.model_validate(
        {"metadata": {"name": name, "annotations": {names.SIDECARSET_HASH: hash_}}, "spec": spec}
    )


HOT = sidecar_set(containers=[hot()])
IN_PROD, IN_DEV = (sidecar_set(namespaceSelector={"matchLabels": {"env": env}}) for env in ("prod", "dev"))


def pod(
    containers: dict[str, str] | None = None,
    *,
    ids: dict[str, str] | None = None,
    images: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    hash_: str = "h2",
    ready: bool = True,
    **given: Any,
) -> Pod:
    """A Pod injected by set s. ``images`` and ``ids`` are those of the status, by container."""
    containers = containers or {"shipper": "a:2", "main": "nginx"}
    record = {"s": {"hash": hash_, "sidecarSetName": "s", "sidecarList": ["shipper"], "controllerRevision": "s-1"}}
    own = {names.SIDECARSET_INJECTED_LIST: "other,s", names.SIDECARSET_HASH: json.dumps(record)}
    statuses = [
        {"name": name, "image": (images or {}).get(name, image), "imageID": (ids or {}).get(name, f"id of {image}")}
        for name, image in containers.items()
    ]
    metadata = {"uid": None, "labels": labels or {"app": "web"}, "annotations": own | (annotations or {}), **given}
    return objects.pod(ready=ready, containers=containers, status={"containerStatuses": statuses}, **metadata)


def hot_pod(first: str = "m:1", second: str = "e:1", working: str | None = '{"mesh":"mesh-1"}', **more: Any) -> Pod:
    annotations = {} if working is None else {names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER: working}
    return pod({"mesh-1": first, "mesh-2": second, "main": "nginx"}, annotations=annotations, **more)


@pytest.mark.behaviour("SS-57", "SS-59")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"s":{"updateTimestamp":null,"hash":"h","sidecarList":null,"controllerRevision":"s-1"}}', ("h", "s-1")),
        ('{"s":{"hash":"h"}}', ("h", "")),
        ('{"s":"h"}', ("h", "")),
        ('{"other":{"hash":"h"}}', ("", "")),
        ("oops", ("", "")),
        ('{"s":7}', ("", "")),
        ("", ("", "")),
        ('{"s":"h"' + "".join(f',"{number}":""' for number in range(MAX_COMMAS + 1)) + "}", ("", "")),
    ],
)
def test_the_record_of_a_set_is_read_from_the_pod(text: str, found: tuple[str, str]) -> None:
    assert recorded({names.SIDECARSET_HASH: text}, "s") == found


@pytest.mark.behaviour("SS-99")
def test_states_of_too_many_sets_are_neither_read_nor_kept() -> None:
    # Each would be compared with every container of the Pod.
    key = names.SIDECARSET_IN_PLACE_UPDATE_STATE
    text = json.dumps({f"set-{number}": {} for number in range(MAX_SETS - 1)})
    full = pod(annotations={key: with_state(pod(annotations={key: text}), "s", "h2", "now", {})})
    assert len(in_place_states(full) or ()) == MAX_SETS
    over = pod(annotations={key: json.dumps({f"set-{number}": {} for number in range(MAX_SETS + 1)})})
    assert in_place_states(over) is None
    assert json.loads(with_state(over, "s", "h2", "now", {})).keys() == {"s"}


@pytest.mark.behaviour("SS-35", "SS-91", "PM-113")
@pytest.mark.parametrize(
    ("stored", "seen", "namespace", "matched"),
    [
        pytest.param(sidecar_set(), pod(), SHOP, True, id="selected and injected"),
        pytest.param(sidecar_set(), pod(), None, True, id="namespaces do not matter"),
        pytest.param(sidecar_set(), pod(labels={"app": "db"}), SHOP, False, id="labels changed"),
        pytest.param(sidecar_set(selector={}), pod(), SHOP, False, id="an empty selector matches nothing"),
        pytest.param(sidecar_set(selector=None), pod(), SHOP, False, id="no selector matches nothing"),
        pytest.param(sidecar_set(), pod(phase="Succeeded"), SHOP, False, id="finished"),
        pytest.param(sidecar_set(), pod(phase="Failed"), SHOP, False, id="failed"),
        pytest.param(sidecar_set(), pod(phase="Pending"), SHOP, True, id="pending counts"),
        pytest.param(sidecar_set(), pod(deletionTimestamp="2026-01-01T00:00:00Z"), SHOP, False, id="being deleted"),
        pytest.param(sidecar_set("t"), pod(), SHOP, False, id="created before the set"),
        pytest.param(
            sidecar_set(containers=[sidecar(), sidecar(name="new")]), pod(), SHOP, False, id="lacks a sidecar"
        ),
        pytest.param(
            sidecar_set(containers=None, initContainers=[sidecar(name="prep")]), pod(), SHOP, True, id="init only"
        ),
        pytest.param(IN_PROD, pod(), SHOP, True, id="namespace in scope"),
        pytest.param(IN_DEV, pod(), SHOP, False, id="out of scope"),
        pytest.param(IN_PROD, pod(), None, False, id="namespace unknown"),
        pytest.param(HOT, hot_pod(), SHOP, True, id="both twins"),
        pytest.param(HOT, hot_pod(working=None), SHOP, False, id="twins without a record of the working one"),
        pytest.param(HOT, hot_pod(working="oops"), SHOP, False, id="an unreadable record"),
        pytest.param(HOT, pod({"mesh-1": "m:1", "main": "nginx"}), SHOP, False, id="one twin only"),
    ],
)
def test_only_selected_running_and_injected_pods_are_matched(
    stored: SidecarSet, seen: Pod, namespace: dict[str, str] | None, matched: bool
) -> None:
    assert is_matched(set_view(stored), seen, namespace) is matched


@pytest.mark.behaviour("SS-82")
@pytest.mark.parametrize(
    ("first", "second", "working", "idle"),
    [
        ("m:1", "e:1", '{"mesh":"mesh-1"}', True),
        ("e:1", "m:2", '{"mesh":"mesh-2"}', True),
        ("m:1", "m:2", '{"mesh":"mesh-1"}', False),
        ("m:1", "m:2", '{"mesh":"mesh-2"}', False),
        ("e:1", "m:2", '{"mesh":"mesh-1"}', False),
        # SS-80: anything but the first twin's name means that the second works.
        ("e:1", "m:2", '{"mesh":"whatever"}', True),
        ("e:1", "m:2", "oops", True),
    ],
)
def test_the_idle_container_must_run_the_empty_image(first: str, second: str, working: str, idle: bool) -> None:
    seen = hot_pod(first, second, working)
    assert twins_are_idle(set_view(HOT), seen) is idle
    if "{" in working:
        assert pod_facts(set_view(HOT), seen, SHOP).ready is idle


def state(**containers: str) -> dict[str, str]:
    """The in-place state annotation of set s: the image ids before."""
    before = {name: {"imageID": image_id} for name, image_id in containers.items()}
    text = json.dumps({"s": {"revision": "h2", "updateTimestamp": None, "lastContainerStatuses": before}})
    return {names.SIDECARSET_IN_PLACE_UPDATE_STATE: text}


STATE = names.SIDECARSET_IN_PLACE_UPDATE_STATE
UNREADABLE = {"annotations": {STATE: "oops"}}
LIBRARY = "docker.io/library"
#: The kubelet has not restarted the sidecar with its new image yet.
IN_FLIGHT: dict[str, Any] = {
    "ids": {"shipper": "old"},
    "images": {"shipper": f"{LIBRARY}/a:1"},
    "annotations": state(shipper="old"),
}
PINNED = {"shipper": f"a@{DIGEST}", "main": "nginx"}


@pytest.mark.behaviour("SS-96")
@pytest.mark.parametrize(
    ("containers", "seen", "consistent"),
    [
        pytest.param({}, {}, True, id="never updated"),
        pytest.param({}, UNREADABLE, False, id="unreadable state"),
        pytest.param({}, {"annotations": {STATE: '{"t":{}}'}}, True, id="state of another set"),
        pytest.param({}, {"annotations": {STATE: '{"s":{"lastContainerStatuses":null}}'}}, True, id="nothing recorded"),
        pytest.param({}, IN_FLIGHT, False, id="in flight"),
        pytest.param({}, {**IN_FLIGHT, "ids": {"shipper": "new"}}, True, id="new content"),
        pytest.param(
            {}, {**IN_FLIGHT, "images": {"shipper": "docker.io/library/a:2"}}, True, id="same content as before"
        ),
        pytest.param(
            {},
            {"ids": {"main": "old"}, "images": {"main": "x"}, "annotations": state(main="old")},
            True,
            id="not a sidecar",
        ),
        pytest.param(PINNED, {"ids": {"shipper": f"{LIBRARY}/a@{DIGEST}"}, **UNREADABLE}, True, id="digest reached"),
        pytest.param(PINNED, {"ids": {"shipper": f"{LIBRARY}/a@{OTHER}"}}, False, id="digest not reached"),
        pytest.param(PINNED, {"ids": {"shipper": f"{LIBRARY}/b@{DIGEST}"}}, False, id="another repository"),
    ],
)
def test_a_pod_is_consistent_if_its_sidecars_run_the_images_in_the_spec(
    containers: dict[str, str], seen: dict[str, Any], consistent: bool
) -> None:
    seen_pod = pod(containers, **seen)
    assert (not unsettled(set_view(sidecar_set()), seen_pod, in_place_states(seen_pod))) is consistent


@pytest.mark.behaviour("SS-96")
def test_a_pod_without_all_its_container_statuses_is_not_consistent() -> None:
    view, seen = set_view(sidecar_set()), pod()
    assert pod_facts(view, seen, SHOP).ready
    fewer = msgspec.structs.replace(seen.status, container_statuses=seen.status.container_statuses[:1])
    assert not pod_facts(view, msgspec.structs.replace(seen, status=fewer), SHOP).ready


@pytest.mark.behaviour("SS-96", "SS-106")
@pytest.mark.parametrize(
    ("seen", "updated", "ready"),
    [
        pytest.param(pod(), True, True, id="up to date"),
        pytest.param(pod(hash_="h1"), False, True, id="outdated"),
        pytest.param(pod(ready=False), True, False, id="not ready"),
        pytest.param(pod(phase="Pending"), True, False, id="not running"),
        pytest.param(pod(annotations={names.SIDECARSET_HASH: "oops"}), False, True, id="unreadable record"),
        pytest.param(pod(**IN_FLIGHT), True, False, id="in flight"),
    ],
)
def test_a_matched_pod_counts_as_updated_and_ready(seen: Pod, updated: bool, ready: bool) -> None:
    facts = pod_facts(set_view(sidecar_set()), seen, SHOP)
    assert (facts.matched, facts.updated, facts.ready) == (True, updated, ready)


def test_the_hash_of_an_unvalidated_set_is_computed() -> None:
    stored = SidecarSet.model_validate({"metadata": {"name": "s"}, "spec": {"containers": [{"name": "c"}]}})
    assert len(set_view(stored).hash) == 64
    broken = SidecarSet.model_validate({"metadata": {"name": "s"}, "spec": {"containers": [{"name": "c", "env": 1}]}})
    assert not pod_facts(set_view(broken), pod({"c": "x"}, hash_=""), SHOP).updated


@pytest.mark.behaviour("SS-104", "SS-106")
@pytest.mark.parametrize("file", sorted(path.name for path in DATA.glob("0*v1beta1.json")))
def test_recorded_pods_produce_the_recorded_status(file: str) -> None:
    items = json.loads((DATA / file).read_text("utf-8"))["items"]
    stored = next(SidecarSet.model_validate(item) for item in items if item["kind"] == "SidecarSet")
    pod_counts = PodCounts()
    for item in items:
        if item["kind"] == "Pod":
            seen = decode_pod(json.dumps(item).encode())
            pod_counts.observe(ObjectKey("moving", seen.metadata.name), pod_facts(set_view(stored), seen, {}), seen)
    assert stored.status is not None
    patch = status_patch(
        stored.status.to_dict(), pod_counts.counts, stored.metadata.generation, stored.status.latest_revision, 0
    )
    assert patch == {}
    assert pod_counts.revisions == {stored.status.latest_revision}


FACTS = st.builds(PodFacts, st.booleans(), st.booleans(), st.booleans(), st.sampled_from(["", "r1", "r2"]))


@pytest.mark.behaviour("SS-106")
@given(st.lists(st.tuples(st.integers(0, 8), st.none() | FACTS), max_size=60))
def test_sums_equal_a_full_recount_after_any_events(events: list[tuple[int, PodFacts | None]]) -> None:
    pod_counts, known = PodCounts(), dict[int, PodFacts]()
    for number, facts in events:
        key = ObjectKey("shop", f"web-{number}")
        if facts is None:
            pod_counts.forget(key)
            known.pop(number, None)
        else:
            pod_counts.observe(key, facts, pod())
            known[number] = facts
        matched = [facts for facts in known.values() if facts.matched]
        assert pod_counts.counts == Counts(
            len(matched),
            len([facts for facts in matched if facts.updated]),
            len([facts for facts in matched if facts.ready]),
            len([facts for facts in matched if facts.updated and facts.ready]),
        )
        assert pod_counts.revisions == {facts.revision for facts in known.values() if facts.revision}
        assert {key.name for key in pod_counts.pods} == {f"web-{number}" for number in known}


@pytest.mark.behaviour("SS-106")
def test_sums_do_not_depend_on_the_revisions_that_pods_name() -> None:
    """Users may write any revision into their Pods."""
    pod_counts = PodCounts()
    for number in range(50):
        pod_counts.observe(ObjectKey("shop", f"web-{number}"), PodFacts(True, True, True, f"r{number}"), pod())
    asked: list[PodFacts] = []
    assert pod_counts.number(lambda facts: not asked.append(facts)) == 50  # type: ignore[func-returns-value]
    assert len(asked) == 1
    assert len(pod_counts.revisions) == 50


@pytest.mark.behaviour("SS-89")
def test_only_differences_are_written() -> None:
    present = status_patch({}, Counts(4, 2, 4, 2), 3, "s-1", 0)
    counts = {"matchedPods": 4, "updatedPods": 2, "readyPods": 4, "updatedReadyPods": 2}
    assert present == {"observedGeneration": 3, **counts, "latestRevision": "s-1", "collisionCount": 0}
    assert status_patch(present, Counts(4, 2, 4, 2), 3, "s-1", 0) == {}
    assert status_patch(present, Counts(4, 3, 3, 2), 3, "s-1", 0) == {"updatedPods": 3, "readyPods": 3}
    newer = {"observedGeneration": 4, "latestRevision": "s-2", "collisionCount": 1}
    assert status_patch(present, Counts(4, 2, 4, 2), 4, "s-2", 1) == newer
    # A stale cache never lowers the generation.
    assert status_patch(present, Counts(4, 2, 4, 2), 2, "s-1", 0) == {}


@pytest.mark.behaviour("SS-106")
def test_empty_fields_that_go_omits_are_removed() -> None:
    present = status_patch({}, Counts(1, 1, 1, 1), 1, "", 0)
    assert "latestRevision" not in present
    taken_away = {"updatedPods": 0, "updatedReadyPods": None}
    assert status_patch({**present, "latestRevision": "s-1"}, Counts(1, 0, 1, 0), 1, "s-1", 0) == taken_away
    assert status_patch({**present, **taken_away}, Counts(1, 0, 1, 0), 1, "", 0) == {}
