"""Recorded revisions are prepared once, and dropped with their sets."""

import orjson
import pytest

from app.admission.pod_webhooks import pod_handler
from app.features.sidecarset.pod_admission import SidecarSetStep
from app.kube.admission import Patched
from app.kube.objects import decode_controller_revision
from tests.features.admitting import FixedClock, World, review_of
from tests.kit.features import decided

POD = {"metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}, "spec": {"containers": []}}


@pytest.mark.behaviour("SS-69")
def test_revisions_of_deleted_sets_are_dropped() -> None:
    world = World()
    step = SidecarSetStep(world.index, world, FixedClock(), lambda: 0.5)
    for number in range(10):
        name, container = f"set-{number}", {"name": "c", "image": "a:1"}
        revision = {
            "metadata": {"name": f"{name}-1", "resourceVersion": "1", "labels": {"kruise.io/sidecarset-name": name}},
            "data": {"spec": {"containers": [container]}},
            "revision": 1,
        }
        world.recorded = [decode_controller_revision(orjson.dumps(revision))]
        spec = {
            "selector": {"matchLabels": {"app": "web"}},
            "containers": [container],
            "injectionStrategy": {"revision": {"revisionName": f"{name}-1"}},
        }
        world.apply({"metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec})
        assert isinstance(decided(pod_handler((step,)).decide(review_of(POD))), Patched)
        world.index.remove(name)
    assert len(step._prepared_revisions) <= 2
