"""The reference agrees with recorded answers of OpenKruise and with the test vectors of the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.property.branches import Branches
from tests.property.case import NOW, Case, Json
from tests.property.defaults import default_pod, defaulted_set
from tests.property.oracle import expected
from tests.property.oracle_basics import HASH, HASH_WITHOUT_IMAGE
from tests.property.oracle_hash import set_hashes
from tests.property.oracle_quantity import BadExpression, evaluate, parse

SAMPLES: list[Json] = json.loads(
    (Path(__file__).parents[1] / "data/openkruise/samples-injection.json").read_text("utf-8")
)
NAMESPACE = {"metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}}}


def recorded_case(number: int, sample: Json) -> Case:
    """Return the recorded Pod and the accepted sets, with the latest revision that the answer names."""
    hashes = (sample["result"].get("annotations") or {}).get(HASH) or {}
    sets = []
    for raw, accepted in zip(sample["sets"], sample["accepted"], strict=True):
        if accepted:
            one = defaulted_set(raw)
            latest = hashes.get(one["metadata"]["name"], {}).get("controllerRevision", "")
            sets.append({**one, "status": {"latestRevision": latest}})
    pod = default_pod(sample["pod"], token=True)
    return Case(number, pod, "default", [NAMESPACE], sets, readiness_gate_for_all=True)


def parsed(text: str) -> Any:
    """Return an annotation as recorded: parsed if it is JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def as_recorded(pod: Json) -> Json:
    """Return a Pod in the form of the recording: after the second built-in admission, with unordered lists sorted."""
    pod = default_pod(pod, token=True)
    spec = pod["spec"]
    for name in ("volumes", "imagePullSecrets"):
        if name in spec:
            spec[name] = sorted(spec[name], key=lambda item: str(item["name"]))
    annotations = {key: parsed(text) for key, text in (pod["metadata"].get("annotations") or {}).items()}
    for key in (HASH, HASH_WITHOUT_IMAGE):
        for entry in annotations.get(key, {}).values():
            assert entry.pop("updateTimestamp") == NOW
    return {"annotations": annotations, "labels": pod["metadata"]["labels"], "spec": spec}


@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_the_reference_matches_the_recorded_system(number: int) -> None:
    sample = SAMPLES[number]
    answer = expected(recorded_case(number, sample))
    if sample["result"].get("denied"):
        assert answer.refused
        return
    assert answer.pod is not None, answer.refused
    recorded = sample["result"]
    assert as_recorded(answer.pod) == {**recorded, "annotations": recorded["annotations"] or {}}


def test_reference_hashes_match_the_vectors() -> None:
    one = [{"name": "container1", "image": "test-image"}]
    plain = "w26c4x8fz245642fdv499b464248f974xddx4x55z5dw55bc6x66464fxz77dc78"
    assert set_hashes(one, None) == (plain, "8wzddb4dvv9c6x8zdc77z4z75987424f457dfv6724ddw6zbdx467wz5x24fc759")
    assert set_hashes(one, one)[0] == plain
    with_sidecar = set_hashes(one, [{**one[0], "restartPolicy": "Always"}])[0]
    assert with_sidecar == "4xwx4d4844vd4v9x79wb4xbxf4xb29475cc4446v8cz2c2f2f5c5bw448vd42z8w"


@pytest.mark.parametrize(
    ("expression", "variable", "value", "result"),
    [
        ("cpu*50%", "cpu", "600m", "300m"),
        ("max(cpu*50%, 50m)", "cpu", "400m", "200m"),
        ("max(memory*20% + 100Mi, 200Mi)", "memory", "800Mi", "260Mi"),
        ("memory/3", "memory", "100Mi", "34952533333m"),
        ("min(max(max(max(0.5,0.5*cpu),cpu-1.0),cpu-1.0),3.0)", "cpu", "1", "500m"),
        ("cpu*50%", "cpu", "0", "0"),
        ("1.5", "memory", "1Gi", "1500m"),
        ("2e3", "cpu", "0", "2k"),
        ("-cpu + 2", "cpu", "500m", "1500m"),
    ],
)
def test_the_reference_computes_the_examples(expression: str, variable: str, value: str, result: str) -> None:
    assert evaluate(expression, variable, parse(value), Branches()).text() == result


@pytest.mark.parametrize("expression", ["cpu*cpu", "1/cpu", "cpu/0", "cpu-2", "CPU"])
def test_the_reference_refuses_values_it_cannot_compute(expression: str) -> None:
    with pytest.raises(BadExpression):
        evaluate(expression, "cpu", parse("1"), Branches())
