"""Worked examples of the injection rules, each as a whole Pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.admitting import HASH, HASH_WITHOUT_IMAGE, INJECTED, LIST, World, main, pod, revision, sidecarset

SHIPPER = {"name": "shipper"}
METRICS = {"name": "metrics", "podInjectPolicy": "AfterAppContainer"}


@pytest.mark.behaviour("SS-42", "SS-46", "SS-56", "SS-57", "SS-58")
def test_sidecars_are_placed_before_and_after_the_app_container() -> None:
    answer = World().apply(sidecarset("s", SHIPPER, METRICS)).create(pod())

    assert answer.containers == ["shipper", "main", "metrics"]
    assert answer.container("shipper") == {"name": "shipper", "image": "registry.example/shipper:1", "env": [INJECTED]}
    assert answer.container("metrics")["env"] == [INJECTED]
    assert answer.container("main") == main()
    assert answer.pod["fieldOfTheFuture"] == {"kept": True}
    assert answer.annotations == {
        HASH: '{"s":{"updateTimestamp":"2026-11-21T03:10:17Z","hash":"hash-s","sidecarSetName":"s",'
        '"sidecarList":["metrics","shipper"]}}',
        HASH_WITHOUT_IMAGE: '{"s":{"updateTimestamp":"2026-11-21T03:10:17Z","hash":"bare-s","sidecarSetName":"s",'
        '"sidecarList":["metrics","shipper"]}}',
        LIST: "s",
    }


@pytest.mark.behaviour("SS-42", "SS-43")
@pytest.mark.parametrize(
    ("sort_by_name", "expected"), [(False, ["zeta", "alpha", "main", "mid"]), (True, ["alpha", "zeta", "main", "mid"])]
)
def test_sidecars_keep_the_order_of_sets_unless_the_gate_sorts_them(sort_by_name: bool, expected: list[str]) -> None:
    sets = sidecarset("s", {"name": "zeta"}, {"name": "alpha"}, {"name": "mid", "podInjectPolicy": "AfterAppContainer"})
    answer = World(sort_by_name=sort_by_name).apply(sets).create(pod())
    assert answer.containers == expected


@pytest.mark.behaviour("SS-44", "SS-58", "SS-56")
def test_init_containers_of_all_sets_are_sorted_by_name_and_explicit_before_is_honored() -> None:
    first = sidecarset("s1", initContainers=[{"name": "z-init"}])
    second = sidecarset(
        "s2", initContainers=[{"name": "a-init"}, {"name": "b-init", "podInjectPolicy": "BeforeAppContainer"}]
    )
    answer = World().apply(second, first).create(pod())
    assert answer.init_containers == ["b-init", "prep", "a-init", "z-init"]
    assert [entry["sidecarList"] for entry in answer.record().values()] == [[], []]
    assert answer.annotations[LIST] == "s1,s2"


@pytest.mark.behaviour("SS-44", "SS-58")
def test_a_native_sidecar_follows_the_init_containers_of_the_pod_and_is_listed() -> None:
    sets = sidecarset(
        "s", initContainers=[{"name": "proxy", "restartPolicy": "Always"}], updateStrategy={"type": "NotUpdate"}
    )
    answer = World().apply(sets).create(pod())
    assert answer.init_containers == ["prep", "proxy"]
    assert answer.record()["s"]["sidecarList"] == ["proxy"]


@pytest.mark.behaviour("SS-48")
def test_only_used_volumes_are_added_and_those_of_the_pod_win() -> None:
    shipper = {**SHIPPER, "volumeMounts": [{"name": "cfg", "mountPath": "/cfg"}, {"name": "data", "mountPath": "/own"}]}
    volumes: list[dict[str, Any]] = [
        {"name": "cfg", "emptyDir": {}},
        {"name": "data", "emptyDir": {}},
        {"name": "spare", "emptyDir": {}},
    ]
    answer = World().apply(sidecarset("s", shipper, volumes=volumes)).create(pod())
    assert answer.pod["spec"]["volumes"] == [*pod()["spec"]["volumes"], {"name": "cfg", "emptyDir": {}}]
    assert answer.mounts("shipper") == ["cfg→/cfg", "data→/own"]


@pytest.mark.behaviour("SS-49", "SS-50")
def test_shared_mounts_skip_taken_paths_and_copy_env_of_their_expressions() -> None:
    shipper = {
        **SHIPPER,
        "volumeMounts": [{"name": "cfg", "mountPath": "/data"}],
        "shareVolumePolicy": {"type": "enabled"},
    }
    answer = World().apply(sidecarset("s", shipper, volumes=[{"name": "cfg", "emptyDir": {}}])).create(pod())
    assert answer.mounts("shipper") == ["cfg→/data", "logs→/var/log/app"]
    assert answer.env("shipper") == ["IS_INJECTED=true", "POD_NAME<metadata.name"]


@pytest.mark.behaviour("SS-46", "SS-47")
def test_transferred_env_is_sorted_and_own_env_wins() -> None:
    shipper = {
        **SHIPPER,
        "env": [{"name": "A", "value": "own"}],
        "transferEnv": [{"sourceContainerName": "main", "envName": "B", "envNames": ["POD_NAME", "A", "NOPE"]}],
    }
    answer = World().apply(sidecarset("s", shipper)).create(pod())
    assert answer.env("shipper") == ["A=own", "IS_INJECTED=true", "B=2", "POD_NAME<metadata.name"]


@pytest.mark.behaviour("SS-47")
@pytest.mark.parametrize(
    ("labels", "expected"), [({"src": "main"}, ["IS_INJECTED=true", "A=1"]), ({}, ["IS_INJECTED=true"])]
)
def test_a_label_names_the_source_container_of_transferred_env(labels: dict[str, str], expected: list[str]) -> None:
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels['src']"}}
    shipper = {**SHIPPER, "transferEnv": [{"sourceContainerNameFrom": source, "envName": "A"}]}
    answer = World().apply(sidecarset("s", shipper)).create(pod(labels={"app": "web", **labels}))
    assert answer.env("shipper") == expected


@pytest.mark.behaviour("SS-52")
def test_pull_secrets_are_merged_without_duplicates() -> None:
    first = sidecarset("s1", {"name": "a"}, imagePullSecrets=[{"name": "r2"}, {"name": "r1"}])
    second = sidecarset("s2", {"name": "b"}, imagePullSecrets=[{"name": "r3"}])
    answer = World().apply(first, second).create(pod(imagePullSecrets=[{"name": "r1"}, {"name": "r1"}]))
    assert answer.pod["spec"]["imagePullSecrets"] == [{"name": "r1"}, {"name": "r2"}, {"name": "r3"}]


@pytest.mark.behaviour("SS-53")
def test_annotations_are_retained_overwritten_or_merged() -> None:
    patches = [
        {"patchPolicy": "MergePatchJson", "annotations": {"oom": '{"shipper":1}', "new": '{"x":null}'}},
        {"patchPolicy": "Overwrite", "annotations": {"k2": "v"}},
        {"patchPolicy": "Retain", "annotations": {"k": "new"}},
    ]
    answer = (
        World()
        .apply(sidecarset("s", SHIPPER, patchPodMetadata=patches))
        .create(pod(annotations={"oom": '{"main":2}', "k": "old"}))
    )
    assert {key: answer.annotations[key] for key in ("oom", "new", "k2", "k")} == {
        "oom": '{"main":2,"shipper":1}',
        "new": '{"x":null}',
        "k2": "v",
        "k": "old",
    }
    without_sidecars = World().apply(sidecarset("s", patchPodMetadata=patches)).create(pod())
    assert without_sidecars.annotations.keys() == {"oom", "new", "k2", "k"}


@pytest.mark.behaviour("SS-45", "SS-46", "SS-58", "SS-78", "SS-79")
def test_a_hot_upgrade_sidecar_has_a_working_and_an_idle_container() -> None:
    upgrade = {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "e:1"}
    answer = World().apply(sidecarset("s", {"name": "mesh", "image": "m:1", "upgradeStrategy": upgrade})).create(pod())
    assert [(c["name"], c["image"]) for c in answer.pod["spec"]["containers"]] == [
        ("mesh-1", "m:1"),
        ("mesh-2", "e:1"),
        ("main", "main:1"),
    ]
    for twin in ("mesh-1", "mesh-2"):
        assert answer.env(twin) == [
            "IS_INJECTED=true",
            f"SIDECARSET_VERSION<metadata.annotations['version.sidecarset.kruise.io/{twin}']",
            f"SIDECARSET_VERSION_ALT<metadata.annotations['versionalt.sidecarset.kruise.io/{twin}']",
        ]
    versions = {key: value for key, value in answer.annotations.items() if key.startswith("version")}
    assert versions == {
        "version.sidecarset.kruise.io/mesh-1": "1",
        "versionalt.sidecarset.kruise.io/mesh-1": "0",
        "version.sidecarset.kruise.io/mesh-2": "0",
        "versionalt.sidecarset.kruise.io/mesh-2": "1",
    }
    assert answer.annotations["kruise.io/sidecarset-working-hotupgrade-container"] == '{"mesh":"mesh-1"}'
    assert answer.record()["s"]["sidecarList"] == ["mesh"]


@pytest.mark.behaviour("SS-42")
def test_a_container_with_the_sidecar_name_is_replaced_in_place() -> None:
    answer = World().apply(sidecarset("s", SHIPPER)).create(pod(containers=[main(), main("shipper")]))
    assert answer.containers == ["main", "shipper"]
    assert answer.container("shipper") == {"name": "shipper", "image": "registry.example/shipper:1", "env": [INJECTED]}


@pytest.mark.behaviour("SS-38")
def test_a_paused_set_changes_nothing() -> None:
    paused = sidecarset(
        "s",
        SHIPPER,
        injectionStrategy={"paused": True},
        patchPodMetadata=[{"patchPolicy": "Overwrite", "annotations": {"k": "v"}}],
    )
    answer = World().apply(paused, sidecarset("s2", {"name": "tool"})).create(pod())
    assert answer.containers == ["tool", "main"]
    assert answer.annotations[LIST] == "s2"
    assert "k" not in answer.annotations


@pytest.mark.behaviour("SS-35")
@pytest.mark.parametrize(("namespace", "injected"), [("shop", True), ("lab", False), ("unknown", False)])
def test_a_namespace_selector_reads_the_labels_of_the_namespace(namespace: str, injected: bool) -> None:
    sets = sidecarset(
        "s", SHIPPER, namespaceSelector={"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]}
    )
    world = World(namespaces={"shop": {"env": "prod"}, "lab": {"env": "dev"}}).apply(sets)
    answer = world.create(pod(metadata={"namespace": namespace}))
    assert ("shipper" in answer.containers) is injected


@pytest.mark.behaviour("SS-77")
@pytest.mark.parametrize(("track", "image", "applied"), [("stable", "shipper:1", "s"), ("canary", "shipper:2", "s-c")])
def test_a_canary_replaces_its_base(track: str, image: str, applied: str) -> None:
    base = sidecarset("s", {**SHIPPER, "image": "shipper:1"})
    canary = sidecarset(
        "s-c",
        {**SHIPPER, "image": "shipper:2"},
        match={"app": "web", "track": "canary"},
        annotations={"apps.kruise.io/sidecarset-canary": "true", "apps.kruise.io/sidecarset-base": "s"},
        updateStrategy={"type": "NotUpdate"},
    )
    answer = World().apply(base, canary).create(pod(labels={"app": "web", "track": track}))
    assert answer.container("shipper")["image"] == image
    assert answer.annotations[LIST] == applied


REVISION = {"revisionName": "r1"}
PARTIAL = {**REVISION, "policy": "Partial"}


@pytest.mark.behaviour("SS-68", "SS-69", "SS-70")
@pytest.mark.parametrize(
    ("choice", "strategy", "image"),
    [
        ({**REVISION, "policy": "Always"}, {}, "v1"),
        (PARTIAL, {"partition": "100%"}, "v1"),
        (PARTIAL, {"partition": "0%"}, "v2"),
        (PARTIAL, {"partition": 3}, "v2"),
        (PARTIAL, {"partition": "0%", "selector": {"matchLabels": {"track": "canary"}}}, "v1"),
        (PARTIAL, {"partition": "0%", "paused": True}, "v1"),
    ],
    ids=["Always", "100%", "0%", "int", "not selected", "paused"],
)
def test_the_injection_revision_decides_the_content(
    choice: dict[str, str], strategy: dict[str, Any], image: str
) -> None:
    old = sidecarset("s", {**SHIPPER, "image": "v1"}, annotations={HASH: "hash-v1", HASH_WITHOUT_IMAGE: "bare-v1"})
    current = sidecarset(
        "s",
        {**SHIPPER, "image": "v2"},
        injectionStrategy={"revision": choice},
        updateStrategy={"type": "RollingUpdate", **strategy},
        status={"latestRevision": "r2"},
    )
    answer = World(recorded=[revision("r1", old)]).apply(current).create(pod())
    assert answer.container("shipper")["image"] == image
    entry = answer.record()["s"]
    assert (entry["hash"], entry["controllerRevision"]) == {"v1": ("hash-v1", "r1"), "v2": ("hash-s", "r2")}[image]


@pytest.mark.behaviour("SS-68", "SS-120")
def test_a_missing_injection_revision_refuses_the_pod_and_reports_it_on_the_set() -> None:
    world = World().apply(sidecarset("s", SHIPPER, injectionStrategy={"revision": REVISION}))
    answer = world.create(pod())
    assert answer.refusal.code == 422
    assert answer.refusal.message == (
        "SidecarSet s: spec.injectionStrategy.revision.revisionName r1: ControllerRevision not found; Pods it matches "
        "cannot be created until the field names an existing revision or is removed"
    )
    assert world.reported == [("s", f"Pod shop/web-0 refused: {answer.refusal.message}")]


@pytest.mark.behaviour("SS-54", "PW-7", "PW-11", "PW-13")
def test_a_set_may_order_the_start_of_sidecars_and_app() -> None:
    patches = [{"patchPolicy": "Overwrite", "annotations": {"apps.kruise.io/container-launch-priority": "Ordered"}}]
    answer = World().apply(sidecarset("s", SHIPPER, patchPodMetadata=patches)).create(pod())
    assert answer.containers == ["shipper", "main"]
    barriers = [answer.container(name)["env"][-1] for name in ("shipper", "main")]
    assert barriers == [
        {"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": {"name": "web-0-barrier", "key": key}}}
        for key in ("p_0", "p_-1")
    ]


@pytest.mark.behaviour("SS-59")
def test_an_unreadable_hash_annotation_refuses_the_pod() -> None:
    world = World().apply(sidecarset("s", SHIPPER))
    answer = world.create(pod(annotations={HASH: "oops"}))
    assert answer.refusal.code == 400
    assert answer.refusal.message.startswith(
        "pod(shop/web-0) invalid annotations[kruise.io/sidecarset-hash] value oops, unmarshal failed: "
    )
    assert world.reported == []  # the Pod is at fault, not the set


@pytest.mark.behaviour("SS-60", "SS-62", "SS-63")
@pytest.mark.parametrize(("limits", "expected"), [({"cpu": "1"}, {"limits": {"cpu": "500m"}}), ({}, {})])
def test_resources_are_computed_from_the_app_containers(limits: dict[str, str], expected: dict[str, Any]) -> None:
    policy = {
        "targetContainersMode": "sum",
        "targetContainersNameRegex": ".*",
        "resourcesExpr": {"limits": {"cpu": "cpu*50%"}},
    }
    sets = sidecarset("s", {**SHIPPER, "resourcesPolicy": policy})
    answer = World().apply(sets).create(pod(containers=[main(resources={"limits": limits})]))
    assert answer.container("shipper")["resources"] == expected


@pytest.mark.behaviour("SS-49")
def test_mounts_of_other_injected_sidecars_are_not_shared() -> None:
    first = sidecarset("s1", {**SHIPPER, "shareVolumePolicy": {"type": "enabled"}})
    second = sidecarset(
        "s2",
        {"name": "tool", "volumeMounts": [{"name": "x", "mountPath": "/x"}]},
        volumes=[{"name": "x", "emptyDir": {}}],
    )
    answer = World().apply(first, second).create(pod())
    assert answer.mounts("shipper") == ["data→/data", "logs→/var/log/app"]
    assert answer.mounts("tool") == ["x→/x"]
