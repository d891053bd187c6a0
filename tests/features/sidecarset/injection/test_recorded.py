"""Sixty recorded Pods get the same answer as from OpenKruise's manager.

The recorded Pods went through an API server, whose changes before and after the webhook are in ``before_admission`` and
``as_stored``: the token mount of the default service account, requests taken from limits, and core defaults. All else
is the webhook's: hashes, revision names, order, env, mounts, volumes and annotations. No case differs on purpose.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from app.features.sidecarset.defaults import with_defaults
from app.features.sidecarset.hashes import sidecarset_hashes
from app.features.sidecarset.history import snapshot
from app.features.sidecarset.types import SidecarSet
from app.pods.revisions import revision_hash, revision_name
from tests.features.admitting import HASH, HASH_WITHOUT_IMAGE, NOW, Json, World

CASES: list[Json] = json.loads(
    (Path(__file__).parents[3] / "data" / "openkruise" / "samples-injection.json").read_text()
)
LISTS = ("initContainers", "containers")
#: Spec fields set by admission plugins and defaults, independent of injection.
OURS = (*LISTS, "volumes", "imagePullSecrets", "readinessGates")
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN = {"name": "kube-api-access", "mountPath": TOKEN_PATH, "readOnly": True}


def stored(manifest: Json) -> Json:
    """The SidecarSet as stored after its controller has recorded a revision."""
    obj = with_defaults(manifest)
    digest, bare = sidecarset_hashes(obj["spec"].get("containers"), obj["spec"].get("initContainers"))
    obj["metadata"]["annotations"] = {HASH: digest, HASH_WITHOUT_IMAGE: bare}
    name = obj["metadata"]["name"]
    data = snapshot(SidecarSet.model_validate(obj).spec)
    obj["status"] = {"latestRevision": revision_name(name, revision_hash(data, 0))}
    return obj


def before_admission(manifest: Json, token_volume: Json) -> Json:
    """The Pod as the webhook gets it: defaulted, with the service account's token mounted."""
    pod = copy.deepcopy(manifest)
    pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or []), token_volume]
    for container in (c for field in LISTS for c in pod["spec"].get(field) or []):
        _complete(container)
    return pod


def as_stored(pod: Json) -> Json:
    """The parts of the Pod that are compared, as the API server stores them."""
    spec: Json = copy.deepcopy(pod["spec"])
    for container in (c for field in LISTS for c in spec.get(field) or []):
        _complete(container)
    for volume in spec["volumes"]:
        if not volume.keys() - {"name"}:
            volume["emptyDir"] = {}
    for field in ("volumes", "imagePullSecrets"):
        # OpenKruise's order is random here, and the recording is sorted.
        if field in spec:
            spec[field] = sorted(spec[field], key=lambda item: str(item["name"]))
    return {field: spec[field] for field in OURS if field in spec}


def _complete(container: Json) -> None:
    """What the API server fills in, and the token mount where its path is free."""
    container.setdefault("imagePullPolicy", "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    if "limits" in resources:
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    mounts = container.setdefault("volumeMounts", [])
    if all(mount["mountPath"] != TOKEN_PATH for mount in mounts):
        mounts.append(TOKEN)


def read(annotations: Json | None) -> Json:
    """Return the annotations with JSON parsed and without the time of injection."""
    result: Json = {}
    for key, text in (annotations or {}).items():
        try:
            result[key] = json.loads(text)
        except ValueError:
            result[key] = text
        if key in (HASH, HASH_WITHOUT_IMAGE):
            for entry in result[key].values():
                assert entry.pop("updateTimestamp") == NOW
    return result


def test_recorded_pods_cover_the_rules() -> None:
    texts = [json.dumps(case["result"]) for case in CASES]
    assert len(CASES) == 60
    for said in ("denied", "sidecarset-working-hotupgrade-container", "CONTAINER_BARRIER", '"requests": {"cpu": "0"}'):
        assert any(said in text for text in texts), said
    assert sum(HASH in text for text in texts) >= 40


@pytest.mark.behaviour("SS-41", "SS-42", "SS-43", "SS-44", "SS-46", "SS-47", "SS-48", "SS-49", "SS-52", "SS-53")
@pytest.mark.behaviour("SS-56", "SS-57", "SS-58", "SS-61", "SS-63", "SS-78", "SS-79", "PM-141", "PM-142", "PM-176")
@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_recorded_pod_gets_the_recorded_answer(number: int) -> None:
    case = CASES[number]
    world = World(namespaces={"default": {}, "other": {}}, sort_by_name=True, every_pod_gated=True)
    for manifest, accepted in zip(case["sets"], case["accepted"], strict=True):
        if accepted:
            world.apply(stored(manifest))
    result: Json = case["result"]
    answer = world.create(before_admission(case["pod"], token_volume(result)))
    if result.get("denied"):
        assert case["message"] == f'admission webhook "mpod.kb.io" denied the request: {answer.refusal.message}'
        return
    assert answer.denied is None, answer.denied
    assert answer.pod["metadata"]["labels"] == result["labels"]
    assert read(answer.pod["metadata"].get("annotations")) == (result["annotations"] or {})
    assert as_stored(answer.pod) == {field: result["spec"][field] for field in OURS if field in result["spec"]}


def token_volume(result: Json) -> Json:
    """Return the volume of the service account token from this recording."""
    volumes = (result.get("spec") or {}).get("volumes") or [{"name": "kube-api-access"}]
    return next(volume for volume in volumes if volume["name"] == "kube-api-access")
