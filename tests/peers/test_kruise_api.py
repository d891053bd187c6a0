"""OpenKruise's typed Go client works on every kind that it knows, and decodes all answers strictly."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from app.api.conversion import convert
from app.api.kind import KindDefinition
from app.manager.features import kinds
from tests.peers import programs
from tests.peers.test_evictions import is_ready
from tests.scenarios.world import ROOT, World, eventually

pytestmark = pytest.mark.peers

#: The examples of the API documentation.
EXAMPLES = {
    found["kind"]: found
    for path in sorted((ROOT / "app/features").glob("*/*.example.yaml"))
    for found in [yaml.safe_load(path.read_text("utf-8"))]
}
#: v1.8.0 of the client, the newest on the module proxy, has v1beta1 only for this kind.
BETA = {"StatefulSet"}
#: Status fields to wait for, where it is not the observed generation.
FIELDS = {
    "AdvancedCronJob": "type",
    "BroadcastJob": "phase",
    "ContainerRecreateRequest": "phase",
    "EphemeralJob": "phase",
    "ImageListPullJob": "desired",
    "ImagePullJob": "desired",
    "NodeImage": "imageStatuses",
    "NodePodProbe": "podProbeStatuses",
}
#: Kinds of the other objects that an example needs.
NEEDED = {
    "ContainerRecreateRequest": ("StatefulSet",),
    "EphemeralJob": ("CloneSet",),
    "NodeImage": ("ImagePullJob",),
    "NodePodProbe": ("DaemonSet", "PodProbeMarker"),
    "PersistentPodState": ("StatefulSet",),
    "PodUnavailableBudget": ("CloneSet",),
    "WorkloadSpread": ("CloneSet",),
}
#: Changes that make an example refer to objects of the test.
CHANGES: dict[str, dict[str, Any]] = {
    "ContainerRecreateRequest": {"podName": "db-0"},
    "PodProbeMarker": {"selector": {"matchLabels": {"app": "agent"}}},
}
#: Go writes ``creationTimestamp: null`` into all metadata. OpenKruise's definition also lacks the field here.
WARNINGS = {"AdvancedCronJob": ['unknown field "spec.template.broadcastJobTemplate.metadata.creationTimestamp"']}
#: Kinds with fields that this version of the client lacks: status.waiting of a NodeImage.
NEWER = {"NodeImage"}
CASES = [(kind, version.name) for kind in kinds() for version in kind.versions if version.name == "v1alpha1"]
CASES += [(kind, "v1beta1") for kind in kinds() if kind.kind in BETA]


def example(world: World, kind: str) -> dict[str, Any]:
    """Return the example, adapted to the test's namespace, or with its own name if it is cluster-scoped."""
    text = json.dumps(EXAMPLES[kind]).replace('"team": "shop"', f'"team": "{world.namespace}"')
    found: dict[str, Any] = json.loads(text)
    found["spec"] |= CHANGES.get(kind, {})
    if kind in ("NodeImage", "NodePodProbe"):  # the manager creates one for each node
        found["metadata"]["name"] = "node1"
    elif kind in ("SidecarSet", "ResourceDistribution"):
        found["metadata"] |= {"name": world.namespace, "labels": {"team": world.namespace}}
    else:
        found["metadata"]["namespace"] = world.namespace
    if kind == "SidecarSet":
        found["spec"]["namespaceSelector"] = {"matchLabels": {"team": world.namespace}}
    return found


@pytest.mark.parametrize(("kind", "version"), [pytest.param(*one, id=f"{one[0].kind}-{one[1]}") for one in CASES])
def test_the_go_client_creates_watches_updates_and_writes_back(
    world: World, kind: KindDefinition, version: str
) -> None:
    for needed in NEEDED.get(kind.kind, ()):
        world.apply(json.dumps(example(world, needed)))
    if "StatefulSet" in NEEDED.get(kind.kind, ()):
        eventually(lambda: is_ready(world.get("pod", "db-0")), "the Pod is ready", 40)
    manifest, wanted = example(world, kind.kind), f"{kind.group}/{version}"
    if manifest["apiVersion"] != wanted:
        manifest = convert(manifest, wanted)
    field = FIELDS.get(kind.kind, "observedGeneration")
    asked = {"object": manifest, "field": field, "strict": kind.kind not in NEWER}
    answer = json.loads(programs.run("kruiseapi", json.dumps(asked), KUBECONFIG=str(world.kubeconfig)))
    assert answer == {"error": "", "warnings": WARNINGS.get(kind.kind, [])}
