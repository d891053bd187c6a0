"""Stored SidecarSets of any shape: each is injected or skipped, and the others are injected as usual."""

from itertools import islice
from typing import Any

import orjson
import pytest

from app.features.sidecarset.injection.prepared import prepare_revision
from app.features.sidecarset.injection.prepared_containers import UnusableSidecarSetError
from app.features.sidecarset.injection.selection import indexed
from app.features.sidecarset.kind import MalformedSidecarSet, read_sidecar_set
from app.features.sidecarset.reconcile import malformation
from app.features.sidecarset.types import SidecarSet
from app.kube.objects import decode_controller_revision
from app.kube.store import Store
from tests.features.admitting import World, pod, sidecarset
from tests.fuzz import objects
from tests.fuzz.objects import Hostile
from tests.nightly import NIGHTLY

ONE_IN = 5 if NIGHTLY else 15


def broken_sets() -> list[Hostile]:
    """Return the set with each field replaced by values of other types and deep nesting."""
    stored = objects.sidecar_set(name="broken")
    mistyped = islice(objects.mistyped(stored), 0, None, ONE_IN)
    return [*mistyped, *islice(objects.deep_in(stored, 300), 0, None, ONE_IN)]


@pytest.mark.behaviour("SS-130")
def test_no_stored_set_prevents_the_injection_of_others() -> None:
    world = World().apply(sidecarset("right", {"name": "shipper", "image": "x"}))
    wrong: dict[str, str] = {}
    for made in broken_sets():
        obj: Any = orjson.loads(objects.encode(made.object))
        try:
            world.index.update(obj)
            answer = world.create(pod())
        except Exception as error:  # noqa: BLE001 - reported as a finding
            wrong[made.what] = f"{type(error).__name__}: {error}"[:200]
            continue
        # A set with valid types but meaningless values may reject the Pods it selects, with its name in the message.
        if answer.denied is None:
            injected = "shipper" in answer.containers
        else:
            injected = "SidecarSet broken" in answer.denied.message or answer.denied.code == 400
        if not injected:
            wrong[made.what] = str(answer.denied)[:200]
        for name in [*world.index.unusable, "broken", "", "x"]:
            world.index.remove(name)
    assert wrong == {}


@pytest.mark.behaviour("SS-130")
def test_any_stored_set_can_be_read_or_skipped() -> None:
    store: Store[SidecarSet] = Store()
    index = indexed(store)
    wrong: dict[str, str] = {}
    for made in broken_sets():
        try:
            found = read_sidecar_set(objects.encode(made.object))
        except ValueError:
            # An object without readable metadata has no name; the watch skips it by its key.
            if made.what.startswith(("metadata", "no metadata")) or "deep" in made.what:
                continue
            wrong[made.what] = "cannot be read"
            continue
        try:
            store.replace([])
            store.put(found)
            problem = malformation(found)
        except Exception as error:  # noqa: BLE001 - reported as a finding
            wrong[made.what] = f"{type(error).__name__}: {error}"[:200]
            continue
        if isinstance(found, MalformedSidecarSet) and not problem:
            wrong[made.what] = "is malformed for no reason"
        if problem and found.name not in index.unusable:
            wrong[made.what] = f"is not set aside: {problem}"
    assert wrong == {}


def test_a_malformed_recorded_revision_is_refused_by_name() -> None:
    spec = objects.sidecar_set()["spec"]
    recorded = {field: spec[field] for field in ("containers", "initContainers", "volumes", "patchPodMetadata")}
    wrong: dict[str, str] = {}
    for made in islice(objects.mistyped({"spec": recorded}), 0, None, ONE_IN):
        body = {"metadata": {"name": "r", "namespace": "kruise-system"}, "revision": 1, "data": made.object}
        try:
            revision = decode_controller_revision(objects.encode(body))
            prepare_revision("s", revision)
        except UnusableSidecarSetError as error:
            if "ControllerRevision r" not in str(error):
                wrong[made.what] = str(error)[:200]
        except Exception as error:  # noqa: BLE001 - reported as a finding
            wrong[made.what] = f"{type(error).__name__}: {error}"[:200]
    assert wrong == {}
