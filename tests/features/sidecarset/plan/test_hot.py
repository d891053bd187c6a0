"""Which twin is upgraded and when the other idles, as tables (SS-80 … SS-85)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api import names
from app.features.sidecarset.plan import update
from app.features.sidecarset.plan.pod_state import pod_facts
from app.features.sidecarset.plan.settings import HotSidecar, SetView, set_view
from app.kube.objects import Pod
from tests.features.sidecarset.test_status import sidecar_set
from tests.kit import objects

SIDECAR = HotSidecar("c", "e", "v2")
HASH = "h2"


def view(image: str = "v2") -> SetView:
    upgrade = {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "e"}
    return set_view(sidecar_set(hash_=HASH, containers=[{"name": "c", "image": image, "upgradeStrategy": upgrade}]))


def pod(
    first: str,
    second: str,
    working: str = "c-1",
    *,
    unready: tuple[str, ...] = (),
    late: tuple[str, ...] = (),
    versions: tuple[str, str, str, str] = ("1", "0", "0", "1"),
    hash_: str = "h1",
) -> Pod:
    """``late``: containers that still run what they ran before; ``versions``: version and the other's of both."""
    images = {"c-1": first, "c-2": second, "main": "app"}
    keys = [
        f"{prefix}{twin}"
        for twin in ("c-1", "c-2")
        for prefix in (names.SIDECARSET_VERSION_PREFIX, names.SIDECARSET_VERSION_ALT_PREFIX)
    ]
    state = {"s": {"revision": "h", "lastContainerStatuses": {name: {"imageID": "before"} for name in late}}}
    annotations = {
        **dict(zip(keys, versions, strict=True)),
        names.SIDECARSET_INJECTED_LIST: "s",
        names.SIDECARSET_HASH: json.dumps({"s": {"hash": hash_}}),
        names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER: json.dumps({"c": working}),
        names.SIDECARSET_IN_PLACE_UPDATE_STATE: json.dumps(state),
    }
    statuses = [
        {
            "name": name,
            "image": "old" if name in late else image,
            "imageID": "before" if name in late else f"id of {image}",
            "ready": name not in unready,
        }
        for name, image in images.items()
    ]
    return objects.pod(
        labels={"app": "web"},
        annotations=annotations,
        ready=not unready,
        containers=images,
        status={"containerStatuses": statuses},
    )


def upgrading(**more: Any) -> Pod:
    """A Pod whose second twin has taken over."""
    return pod("v1", "v2", "c-2", versions=("1", "5", "5", "1"), **more)


UNREADY = upgrading(unready=("c-2",))


@pytest.mark.behaviour("SS-81")
@pytest.mark.parametrize(
    ("images", "working", "good", "target"),
    [
        (("e", "v1"), "c-2", {"c-1", "c-2"}, "c-1"),
        (("v1", "e"), "c-1", {"c-1", "c-2"}, "c-2"),
        (("v1", "v2"), "c-2", {"c-1"}, "c-2"),
        (("v1", "v2"), "c-2", {"c-2"}, "c-1"),
        (("v1", "v2"), "c-2", {"c-1", "c-2"}, "c-1"),
        (("v1", "v2"), "c-1", set(), "c-2"),
        (("v1", "v2"), "nonsense", set(), "c-1"),
    ],
)
def test_the_idle_or_failed_container_gets_the_new_image(
    images: tuple[str, str], working: str, good: set[str], target: str
) -> None:
    works = SIDECAR.first if working == SIDECAR.first else SIDECAR.second
    assert update.twin_to_upgrade(SIDECAR, dict(zip(("c-1", "c-2"), images, strict=True)), works, good) == target


@pytest.mark.behaviour("SS-81", "SS-84", "SS-85")
@pytest.mark.parametrize(
    ("found", "wanted", "images", "working", "versions"),
    [
        # The idle twin takes the new image.
        (pod("v1", "e"), "v2", {"c-2": "v2"}, "c-2", ("1", "9", "9", "1")),
        (pod("e", "v1", "c-2", versions=("0", "5", "5", "0")), "v2", {"c-1": "v2"}, "c-1", ("9", "5", "5", "9")),
        # The working twin already runs it.
        (pod("v2", "e"), "v2", {}, "c-1", ("1", "0", "0", "1")),
        # Changed again during the upgrade: the new twin, which is not ready, takes the newest image.
        (UNREADY, "v3", {"c-2": "v3"}, "c-2", ("1", "9", "9", "1")),
        # Rolled back: the former twin works again, and the failed one becomes idle.
        (UNREADY, "v1", {"c-2": "e"}, "c-1", ("1", "0", "0", "1")),
        # Rolled back while both run: the former twin works again, and the other becomes idle as after any upgrade.
        (upgrading(), "v1", {}, "c-1", ("9", "5", "5", "9")),
        # Another field changed during the upgrade: the new twin, which is not ready, already has the image.
        (UNREADY, "v2", {}, "c-2", ("1", "5", "5", "1")),
        # No sidecar is upgraded to the empty image.
        (pod("v1", "e"), "e", {}, "c-1", ("1", "0", "0", "1")),
    ],
)
def test_a_hot_upgrade_changes_images_and_the_working_container(
    found: Pod, wanted: str, images: dict[str, str], working: str, versions: tuple[str, ...]
) -> None:
    change = update.upgraded(view(wanted), found, "9")
    assert change.images == images
    after = {**found.metadata.annotations, **change.annotations}
    assert json.loads(after[names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER]) == {"c": working}
    prefixes = (names.SIDECARSET_VERSION_PREFIX, names.SIDECARSET_VERSION_ALT_PREFIX)
    assert tuple(after[f"{prefix}{twin}"] for twin in ("c-1", "c-2") for prefix in prefixes) == versions


@pytest.mark.behaviour("SS-81", "SS-82")
@pytest.mark.parametrize(
    ("found", "migrated", "ready"),
    [
        (pod("v1", "e"), False, True),
        (upgrading(), True, False),
        (upgrading(unready=("c-1",)), True, False),
        (UNREADY, False, False),
        (upgrading(late=("c-2",)), False, False),
        # The twin idles on a former empty image of the set: there was no upgrade.
        (pod("v1", "former", "c-1"), False, False),
        # The working twin must not become idle, too.
        (pod("v1", "e", "c-2", versions=("1", "5", "5", "1")), False, False),
    ],
)
def test_the_old_container_becomes_idle_once_the_new_one_is_ready(found: Pod, migrated: bool, ready: bool) -> None:
    facts = pod_facts(view(), found, {})
    assert (facts.migrated, facts.ready) == (migrated, ready)
    change = update.migrated(view(), found)
    if migrated:
        assert change.images == {"c-1": "e"}


_IMAGES = st.sampled_from(["e", "v1", "v2", "v3"])
_TWINS = st.sampled_from(["c-1", "c-2"])


@pytest.mark.behaviour("SS-81", "SS-85")
@given(_IMAGES, _IMAGES, _TWINS, st.sets(_TWINS), st.sets(_TWINS), _IMAGES)
def test_the_working_container_never_gets_the_empty_image(
    first: str, second: str, working: str, unready: set[str], late: set[str], wanted: str
) -> None:
    found = pod(first, second, working, unready=tuple(unready), late=tuple(late), versions=("1", "5", "5", "1"))
    for change in (update.upgraded(view(wanted), found, "9"), update.migrated(view(wanted), found)):
        after = {"c-1": first, "c-2": second} | change.images
        assert set(after.values()) != {"e"} or first == second == "e"
