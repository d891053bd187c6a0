"""The kinds of image pulls: defaults, validation and conversion."""

from __future__ import annotations

from typing import Any

import pytest

from app.api.conversion import convert
from app.features.imagepull.defaults import node_image_with_defaults
from app.features.imagepull.validation import (
    job_errors,
    job_warnings,
    list_job_errors,
    node_image_errors,
    node_image_warnings,
)
from app.kube.fielderrors import aggregate
from tests.admission.writing import ALPHA, BETA

NOW = "2026-01-01T00:00:00Z"


@pytest.mark.behaviour("IMG-6")
def test_tags_of_a_node_image_get_times_and_policies_in_sorted_order() -> None:
    spec = {"images": {"nginx": {"tags": [{"tag": "b", "createdAt": "2025-01-01T00:00:00Z"}, {"tag": "a"}]}}}
    status = {"desired": 2, "imageStatuses": {"nginx": {"tags": [{"tag": "b"}, {"tag": "a"}]}}}
    filled = node_image_with_defaults({"spec": spec, "status": status}, NOW)
    policy = {"timeoutSeconds": 600, "backoffLimit": 3}
    assert filled["spec"]["images"]["nginx"]["tags"] == [
        {"tag": "a", "createdAt": NOW, "pullPolicy": policy},
        {"tag": "b", "createdAt": "2025-01-01T00:00:00Z", "pullPolicy": policy},
    ]
    assert [tag["tag"] for tag in filled["status"]["imageStatuses"]["nginx"]["tags"]] == ["a", "b"]


@pytest.mark.behaviour("IMG-12")
def test_node_image_errors_name_the_field() -> None:
    tag = {"tag": "1", "createdAt": NOW, "version": -1, "pullPolicy": {"ttlSecondsAfterFinished": 1}}
    spec = {"images": {"": {"tags": []}, "nginx": {"tags": [tag, {**tag, "version": 0}, {"tag": ""}]}}}
    assert {error.field for error in node_image_errors(spec)} == {
        "spec.images[]",
        "spec.images[nginx].tags[0].version",
        "spec.images[nginx].tags[1].tag",
        "spec.images[nginx].tags[2].tag",
        "spec.images[nginx].tags[2].createdAt",
        "spec.images[nginx].tags[2].pullPolicy",
    }
    many = {"images": {f"image{n}": {"tags": []} for n in range(257)}}
    assert aggregate(node_image_errors(many)) == "spec.images: Too many: 257: must have at most 256 items"


@pytest.mark.behaviour("IMG-7", "IMG-8", "IMG-11")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"selector": {"names": ["a", "a"]}}, 'spec.selector.names: Duplicate value: "a"'),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            'spec.podSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
        ),
        ({"parallelism": "5"}, ""),
        ({"parallelism": "0"}, ""),
        ({"parallelism": "-1"}, "spec.parallelism: Invalid value: -1: parallelism must be non-negative"),
    ],
)
def test_job_errors_name_the_field(change: dict[str, Any], message: str) -> None:
    spec = {"image": "nginx", "completionPolicy": {"type": "Always"}, **change}
    said = aggregate(job_errors(spec))
    assert said.startswith(message)
    assert bool(said) == bool(message)
    assert aggregate(list_job_errors({**spec, "images": ["nginx"]})) == said


@pytest.mark.behaviour("IMG-11")
def test_the_jobs_of_a_list_take_a_limited_number_of_bytes() -> None:
    nodes = {"names": [f"node-{number:05}" for number in range(10_000)]}
    spec = {"completionPolicy": {"type": "Always"}, "selector": nodes, "images": [f"image{n}" for n in range(130)]}
    said = "spec.images: Invalid value: 130: the ImagePullJobs would total 16907930 bytes, more than 16777216"
    assert aggregate(list_job_errors(spec)).startswith(said)
    assert not list_job_errors({**spec, "images": spec["images"][:100]})


@pytest.mark.behaviour("IMG-9", "IMG-11")
def test_unsupported_list_job_fields_get_a_warning() -> None:
    spec = {
        "images": [f"image{n}" for n in range(256)],
        "imagePullPolicy": "Sometimes",
        "completionPolicy": {"type": "Always", "activeDeadlineSeconds": 10},
        "pullPolicy": {"timeoutSeconds": 600},
    }
    assert aggregate(list_job_errors(spec)) == "spec.images: Too many: 256: must have at most 255 items"
    assert [warning.split(":")[0] for warning in job_warnings(spec)] == [
        "spec.imagePullPolicy",
        "spec.completionPolicy.activeDeadlineSeconds",
    ]


@pytest.mark.behaviour("IMG-110")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sandboxConfig": {"annotations": {"a": "v" * 32_000}}}, ""),
        ({"sandboxConfig": {"annotations": {"a": "v" * 33_000}}}, "spec.sandboxConfig: Invalid value: 33024: must"),
        ({"pullSecrets": [f"s{number}" for number in range(64)]}, ""),
        ({"pullSecrets": [f"s{number}" for number in range(65)]}, "spec.pullSecrets: Too many: 65: must"),
    ],
)
def test_one_job_cannot_fill_shared_objects(more: dict[str, Any], said: str) -> None:
    spec = {"completionPolicy": {"type": "Always"}, **more}
    assert aggregate(job_errors({"image": "nginx", **spec})).startswith(said)
    assert aggregate(list_job_errors({"images": ["nginx"], **spec})).startswith(said)
    assert bool(job_errors({"image": "nginx", **spec})) == bool(said)


@pytest.mark.behaviour("IMG-112")
def test_image_lists_that_cannot_be_pulled_get_a_warning_on_creation() -> None:
    policy = {"ttlSecondsAfterFinished": 600}

    def spec(**images: list[str]) -> dict[str, Any]:
        tags = {name: [{"tag": tag, "pullPolicy": policy} for tag in wanted] for name, wanted in images.items()}
        return {"images": {name: {"tags": wanted} for name, wanted in tags.items()}}

    before = spec(ubuntu=["24 04"])
    now = spec(ubuntu=["24 04", "2 5", "22.04"], **{"UPPER/x": ["1"], "docker.io/library/nginx": ["1", "2"]})
    now["images"]["reg:5000/app"] = spec(x=["sha256:" + "0" * 64])["images"]["x"]
    assert node_image_warnings(now, before) == [
        'spec.images[ubuntu].tags[1]: "ubuntu:2 5" is not an image reference',
        'spec.images[UPPER/x].tags[0]: "UPPER/x:1" is not an image reference',
        'spec.images[docker.io/library/nginx]: use "nginx" instead; otherwise nodes pull the image even if they have '
        "it",
    ]
    assert node_image_warnings(now, now) == []
    assert len(node_image_warnings(spec(ubuntu=[f"{number} x" for number in range(300)]), None)) == 10


@pytest.mark.behaviour("IMG-1")
def test_v1alpha1_does_not_show_the_mode_of_a_pull_secret_and_does_not_lose_it() -> None:
    obj: dict[str, Any] = {
        "apiVersion": BETA,
        "kind": "NodeImage",
        "metadata": {"name": "n"},
        "spec": {"images": {"nginx": {"tags": [], "pullSecrets": [{"namespace": "a", "name": "b", "mode": "batch"}]}}},
    }
    shown = convert(obj, ALPHA)
    assert convert(shown, BETA) == obj
    assert shown["spec"]["images"]["nginx"]["pullSecrets"] == [{"namespace": "a", "name": "b"}]
    shown["spec"]["images"]["nginx"]["pullSecrets"] = [{"namespace": "a", "name": "c"}]
    assert convert(shown, BETA)["spec"]["images"]["nginx"]["pullSecrets"] == [{"namespace": "a", "name": "c"}]
