"""Injection rule by rule: positions, env, volumes, sharing, secrets, annotations, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.features.admitting import (
    HASH,
    HASH_WITHOUT_IMAGE,
    INJECTED,
    LIST,
    NOW,
    Json,
    World,
    main,
    pod,
    revision,
    sidecarset,
)

SHIPPER = {"name": "shipper"}
SHARING = {**SHIPPER, "shareVolumePolicy": {"type": "enabled"}}
HOT = {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "e:1"}


def injected(sets: Json, given: Json | None = None, **world: Any) -> Any:
    answer = World(**world).apply(sets).create(given or pod())
    assert answer.denied is None, answer.denied
    return answer


# --- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SS-40", "PW-36")
@pytest.mark.parametrize(
    "claim",
    [
        {"status": {"phase": "Succeeded"}},
        {"status": {"phase": "Failed", "conditions": [{"type": "Ready", "status": "True"}]}},
        {"metadata": {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0}},
        {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}},
        {"metadata": {"uid": "u", "resourceVersion": "1", "generation": 7, "creationTimestamp": NOW}},
        {"metadata": {"finalizers": ["example.com/x"], "managedFields": [{"manager": "kubelet"}]}},
        {"metadata": {"annotations": {LIST: "s"}}},
    ],
    ids=lambda claim: str(claim)[:60],
)
def test_claims_of_a_new_pod_do_not_prevent_injection(claim: Json) -> None:
    given = pod(metadata=claim.get("metadata", {}))
    given |= {"status": claim["status"]} if "status" in claim else {}
    assert claim.get("metadata", {}).items() <= given["metadata"].items()
    assert injected(sidecarset("s", SHIPPER), given).containers == ["shipper", "main"]


@pytest.mark.behaviour("SS-40", "PW-8")
def test_a_dry_run_is_injected_without_recording_refusals() -> None:
    world = World().apply(sidecarset("s", SHIPPER))
    assert world.create(pod(), dry_run=True).containers == ["shipper", "main"]
    world.apply(sidecarset("s", SHIPPER, injectionStrategy={"revision": {"revisionName": "gone"}}))
    assert world.create(pod(), dry_run=True).denied is not None
    assert world.reported == []


@pytest.mark.behaviour("PW-10")
def test_a_static_pod_image_is_unchanged() -> None:
    mirror = pod(
        annotations={"kubernetes.io/config.mirror": "x", "apps.kruise.io/container-launch-priority": "Ordered"}
    )
    mirror["spec"]["containers"].append({"name": "second", "image": "x"})
    world = World().apply(sidecarset("s", SHIPPER))
    assert world.create(mirror, groups=("system:nodes", "system:authenticated")).operations == []
    claimed = world.create(mirror, groups=("system:authenticated",))
    assert claimed.containers == ["shipper", "main", "second"]
    assert all("KRUISE_CONTAINER_BARRIER" in " ".join(claimed.env(name)) for name in claimed.containers)


@pytest.mark.behaviour("PW-6", "SS-35")
@pytest.mark.parametrize(("request_namespace", "applies"), [("shop", True), ("lab", False), ("", False)])
def test_a_pod_without_namespace_uses_that_of_the_request(request_namespace: str, applies: bool) -> None:
    scoped = sidecarset("s", SHIPPER, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "shop"}})
    given = pod()
    del given["metadata"]["namespace"]
    answer = World().apply(scoped).create(given, namespace=request_namespace)
    assert ("shipper" in answer.containers) is applies
    assert "namespace" not in answer.pod["metadata"]


@pytest.mark.behaviour("SS-41")
def test_sets_without_sidecars_only_patch_annotations() -> None:
    empty = sidecarset("s", patchPodMetadata=[{"patchPolicy": "Retain", "annotations": {"k": "v"}}])
    answer = injected(empty)
    assert answer.annotations == {"k": "v"}
    assert answer.rules == ["SS-53 SidecarSet s"]


@pytest.mark.behaviour("SS-41", "SS-56", "SS-57")
def test_a_patch_only_set_is_listed_without_a_hash() -> None:
    empty = sidecarset("a", patchPodMetadata=[{"patchPolicy": "Retain", "annotations": {"k": "v"}}])
    answer = World().apply(empty, sidecarset("s", SHIPPER)).create(pod())
    assert answer.annotations[LIST] == "a,s"
    assert list(answer.record()) == ["s"]


@pytest.mark.behaviour("SS-69")
def test_a_recorded_revision_has_its_own_volumes_secrets_and_metadata() -> None:
    mounting = {**SHIPPER, "volumeMounts": [{"name": "old", "mountPath": "/old"}]}
    old = sidecarset(
        "s",
        mounting,
        volumes=[{"name": "old", "emptyDir": {}}],
        imagePullSecrets=[{"name": "old"}],
        patchPodMetadata=[{"patchPolicy": "Overwrite", "annotations": {"age": "old"}}],
    )
    current = sidecarset(
        "s",
        {"name": "newer"},
        injectionStrategy={"revision": {"customVersion": "v1"}},
        imagePullSecrets=[{"name": "new"}],
        patchPodMetadata=[{"patchPolicy": "Overwrite", "annotations": {"age": "new"}}],
    )
    version = {"apps.kruise.io/sidecarset-custom-version": "v1"}
    answer = injected(current, recorded=[revision("r1", old, **version)])
    assert answer.containers == ["shipper", "main"]
    assert answer.volumes == ["data", "logs", "old"]
    assert answer.pod["spec"]["imagePullSecrets"] == [{"name": "old"}]
    assert answer.annotations["age"] == "old"


# --- positions --------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SS-42")
def test_replaced_sidecars_of_several_sets_keep_their_order() -> None:
    first = sidecarset("s1", {"name": "b"}, {"name": "z", "podInjectPolicy": "AfterAppContainer"})
    second = sidecarset(
        "s2",
        {"name": "a"},
        {"name": "second"},
        {"name": "unset", "podInjectPolicy": ""},
        {"name": "y", "podInjectPolicy": "AfterAppContainer"},
    )
    answer = World().apply(second, first).create(pod(containers=[main(), main("second"), main("third")]))
    assert answer.containers == ["b", "a", "main", "second", "third", "z", "unset", "y"]
    assert answer.container("second")["image"] == "registry.example/second:1"


@pytest.mark.behaviour("SS-43", "SS-45")
def test_the_gate_sorts_hot_upgrade_containers_with_the_other_sidecars() -> None:
    sets = sidecarset("s", {"name": "b", "upgradeStrategy": HOT}, {"name": "a"}, {"name": "b-10"})
    assert injected(sets, sort_by_name=True).containers == ["a", "b-1", "b-10", "b-2", "main"]


@pytest.mark.behaviour("SS-44")
@pytest.mark.parametrize("inits", [None, []])
def test_init_containers_are_injected_into_a_pod_without_any(inits: list[Json] | None) -> None:
    given = pod(initContainers=inits)
    answer = injected(sidecarset("s", initContainers=[{"name": "b"}, {"name": "a"}]), given)
    assert answer.init_containers == ["a", "b"]


@pytest.mark.behaviour("SS-42", "SS-44")
def test_an_init_container_with_the_sidecar_name_is_replaced_in_place() -> None:
    sets = sidecarset("s", initContainers=[{"name": "prep", "podInjectPolicy": "BeforeAppContainer"}])
    given = pod(initContainers=[{"name": "first", "image": "x"}, {"name": "prep", "image": "x"}])
    answer = injected(sets, given)
    assert answer.init_containers == ["first", "prep"]
    assert answer.container("prep")["env"] == [INJECTED]


@pytest.mark.behaviour("SS-45")
def test_a_container_with_a_hot_upgrade_name_is_overwritten_in_place() -> None:
    sets = sidecarset("s", {"name": "mesh", "upgradeStrategy": HOT})
    answer = injected(sets, pod(containers=[main(), main("mesh-2")]))
    assert answer.containers == ["mesh-1", "main", "mesh-2"]
    assert answer.container("mesh-2")["image"] == "e:1"


@pytest.mark.behaviour("SS-34", "SS-45")
def test_hot_upgrade_is_ignored_for_init_containers_that_end() -> None:
    sets = sidecarset("s", initContainers=[{"name": "once", "upgradeStrategy": HOT}])
    answer = injected(sets)
    assert answer.init_containers == ["prep", "once"]
    assert not any("hotupgrade" in key for key in answer.annotations)


def test_sidecar_only_fields_are_removed_from_the_pod() -> None:
    sidecar = {
        **SHARING,
        "shareVolumeDevicePolicy": {"type": "enabled"},
        "transferEnv": [{"sourceContainerName": "main", "envName": "A"}],
        "resources": {"limits": {"cpu": "1"}},
        "fieldOfTheFuture": 1,
    }
    answer = injected(sidecarset("s", sidecar))
    assert set(answer.container("shipper")) == {
        "name",
        "image",
        "env",
        "volumeMounts",
        "resources",
        "fieldOfTheFuture",
    }


# --- env --------------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SS-46", "SS-47")
@pytest.mark.parametrize(
    ("transfer", "expected"),
    [
        ([{"sourceContainerName": "main", "envName": "B"}], ["B=2"]),
        ([{"sourceContainerName": "main", "envNames": ["B", "A"]}], ["A=1", "B=2"]),
        (
            [{"sourceContainerName": "second", "envName": "A"}, {"sourceContainerName": "main", "envName": "A"}],
            ["A=other"],
        ),
        ([{"sourceContainerName": "nobody", "envName": "A"}], []),
        ([{"sourceContainerName": "prep", "envName": "A"}], []),
        ([{"sourceContainerName": "main", "envName": "", "envNames": [""]}], []),
        ([{"envName": "A"}], []),
        ([{"sourceContainerName": "main", "sourceContainerNameFrom": {}, "envName": "A"}], ["A=1"]),
        (
            [
                {
                    "sourceContainerName": "main",
                    "sourceContainerNameFrom": {"fieldRef": {"fieldPath": "metadata.annotations['from']"}},
                    "envName": "A",
                }
            ],
            ["A=other"],
        ),
        ([{"sourceContainerNameFrom": {"fieldRef": {"fieldPath": "metadata.name"}}, "envName": "A"}], []),
    ],
    ids=[
        "one",
        "sorted",
        "first wins",
        "no container",
        "no init",
        "no names",
        "no source",
        "SS-9",
        "annotation",
        "other path",
    ],
)
def test_transferred_env(transfer: list[Json], expected: list[str]) -> None:
    second = main("second", env=[{"name": "A", "value": "other"}])
    given = pod(
        containers=[main(), second],
        initContainers=[{"name": "prep", "env": [{"name": "A", "value": "init"}]}],
        annotations={"from": "second"},
    )
    answer = injected(sidecarset("s", {**SHIPPER, "transferEnv": transfer}), given)
    assert answer.env("shipper") == ["IS_INJECTED=true", *expected]


@pytest.mark.behaviour("SS-47")
def test_env_is_not_transferred_between_injected_sidecars() -> None:
    tool = {"name": "tool", "env": [{"name": "T", "value": "1"}]}
    taking = {**SHIPPER, "transferEnv": [{"sourceContainerName": "tool", "envName": "T"}]}
    assert injected(sidecarset("s", tool, taking)).env("shipper") == ["IS_INJECTED=true"]


@pytest.mark.behaviour("SS-46", "SS-78")
def test_hot_upgrade_containers_get_transferred_env_before_version_env() -> None:
    transfer = [{"sourceContainerName": "main", "envName": "A"}]
    answer = injected(sidecarset("s", {"name": "mesh", "upgradeStrategy": HOT, "transferEnv": transfer}))
    names = [entry["name"] for entry in answer.container("mesh-2")["env"]]
    assert names == ["IS_INJECTED", "A", "SIDECARSET_VERSION", "SIDECARSET_VERSION_ALT"]


# --- volumes and mounts -----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SS-48")
def test_volumes_are_added_in_order_of_use_starting_with_init_containers() -> None:
    sets = sidecarset(
        "s",
        {**SHIPPER, "volumeMounts": [{"name": "c", "mountPath": "/c"}], "volumeDevices": [{"name": "d"}]},
        {"name": "tool", "volumeMounts": [{"name": "c", "mountPath": "/c"}, {"name": "b", "mountPath": "/b"}]},
        initContainers=[{"name": "i", "volumeMounts": [{"name": "a", "mountPath": "/a"}]}],
        volumes=[{"name": name, "emptyDir": {}} for name in ("a", "b", "c", "d", "unused")],
    )
    assert injected(sets, pod(volumes=None)).volumes == ["a", "c", "d", "b"]


@pytest.mark.behaviour("SS-48", "SS-37")
def test_of_two_volumes_with_one_name_the_first_set_wins() -> None:
    def mounting(name: str, medium: str) -> Json:
        container = {"name": f"c-{name}", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        return sidecarset(name, container, volumes=[{"name": "v", "emptyDir": {"medium": medium}}])

    answer = World().apply(mounting("s2", "2"), mounting("s1", "1")).create(pod())
    assert answer.pod["spec"]["volumes"][-1] == {"name": "v", "emptyDir": {"medium": "1"}}


@pytest.mark.behaviour("SS-49", "SS-59")
def test_mounts_are_shared_from_app_containers_only() -> None:
    former = main("former", env=[INJECTED], volumeMounts=[{"name": "f", "mountPath": "/former"}])
    second = main(
        "second", env=None, volumeMounts=[{"name": "x", "mountPath": "/data"}, {"name": "t", "mountPath": "/t"}]
    )
    given = pod(
        containers=[main(), former, second],
        initContainers=[{"name": "prep", "volumeMounts": [{"name": "i", "mountPath": "/init"}]}],
    )
    answer = injected(sidecarset("s", SHARING, initContainers=[{**SHARING, "name": "i"}]), given)
    assert answer.mounts("shipper") == ["data→/data", "logs→/var/log/app", "t→/t"]
    assert answer.mounts("i") == answer.mounts("shipper")


@pytest.mark.behaviour("SS-49", "SS-51")
def test_mounts_and_devices_skip_each_other() -> None:
    app = main(
        volumeMounts=[{"name": "m", "mountPath": "/one"}, {"name": "m", "mountPath": "/two"}],
        volumeDevices=[
            {"name": "d1", "devicePath": "/two"},
            {"name": "d2", "devicePath": "/three"},
            {"name": "d3", "devicePath": "/three"},
        ],
    )
    sidecar = {
        **SHARING,
        "shareVolumeDevicePolicy": {"type": "enabled"},
        "volumeDevices": [{"name": "own", "devicePath": "/one"}],
    }
    answer = injected(sidecarset("s", sidecar), pod(containers=[app]))
    assert answer.mounts("shipper") == ["m→/two"]
    assert answer.container("shipper")["volumeDevices"] == [
        {"name": "own", "devicePath": "/one"},
        {"name": "d2", "devicePath": "/three"},
    ]


@pytest.mark.behaviour("SS-51")
def test_devices_are_shared_without_mounts_and_may_be_missing() -> None:
    app = main(volumeDevices=[{"name": "d", "devicePath": "/dev/x"}])
    sidecar = {**SHIPPER, "shareVolumeDevicePolicy": {"type": "enabled"}}
    answer = injected(sidecarset("s", sidecar), pod(containers=[app]))
    assert answer.container("shipper")["volumeDevices"] == [{"name": "d", "devicePath": "/dev/x"}]
    assert "volumeMounts" not in answer.container("shipper")
    assert "volumeDevices" not in injected(sidecarset("s", sidecar)).container("shipper")


@pytest.mark.behaviour("SS-50")
def test_variables_of_skipped_mounts_are_copied_and_missing_ones_ignored() -> None:
    mounts = [
        {"name": "logs", "mountPath": "/own", "subPathExpr": "$(A)/x"},
        {"name": "logs", "mountPath": "/free", "subPathExpr": "$(B)/$(NOT_THERE)/$$(POD_NAME"},
    ]
    own = {**SHARING, "volumeMounts": [{"name": "cfg", "mountPath": "/own"}]}
    answer = injected(sidecarset("s", own), pod(containers=[main(volumeMounts=mounts)]))
    assert answer.env("shipper") == ["IS_INJECTED=true", "A=1", "B=2"]


def with_variable(name: str, path: str, value: str) -> Json:
    return main(
        name,
        env=[{"name": "DIR", "value": value}],
        volumeMounts=[{"name": "logs", "mountPath": path, "subPathExpr": "$(DIR)"}],
    )


@pytest.mark.behaviour("SS-50")
@pytest.mark.parametrize(
    ("own_env", "own_mounts", "origin"),
    [
        ([], [], "container main"),
        ([{"name": "DIR", "value": "mine"}], [], "its own env in SidecarSet s"),
        ([], [{"name": "cfg", "mountPath": "/two"}], None),
        ([{"name": "DIR", "value": "1"}], [{"name": "cfg", "mountPath": "/two"}], None),
    ],
    ids=["two app containers", "own env", "the second mount is not shared", "the same value"],
)
def test_a_subpath_that_changes_meaning_is_refused(
    own_env: list[Json], own_mounts: list[Json], origin: str | None
) -> None:
    sets = sidecarset("s", {**SHARING, "env": own_env, "volumeMounts": own_mounts})
    given = pod(containers=[with_variable("main", "/one", "1"), with_variable("second", "/two", "2")])
    answer = World().apply(sets).create(given)
    if origin is None:
        assert answer.denied is None
    else:
        assert answer.denied is not None
        container = "main" if own_env else "second"
        assert answer.denied.message == (
            f"SidecarSet s: container shipper cannot share mount {'/one' if own_env else '/two'} of container "
            f"{container}: its subPathExpr uses $(DIR), which has one value from container {container} and another "
            f"from {origin}; use one value, or set shareVolumePolicy.type to disabled"
        )


@pytest.mark.behaviour("SS-50")
def test_a_field_reference_equals_one_with_the_default_version() -> None:
    def naming(name: str, path: str, **version: str) -> Json:
        field = {"fieldRef": {**version, "fieldPath": "metadata.name"}}
        return main(
            name,
            env=[{"name": "POD", "valueFrom": field}],
            volumeMounts=[{"name": "logs", "mountPath": path, "subPathExpr": "$(POD)"}],
        )

    given = pod(containers=[naming("main", "/1"), naming("second", "/2", apiVersion="v1")])
    assert injected(sidecarset("s", SHARING), given).mounts("shipper") == ["logs→/1", "logs→/2"]


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SS-52")
@pytest.mark.parametrize(
    ("present", "added", "expected", "operations"),
    [
        (None, [], None, 0),
        (None, ["a", "b", "a"], ["a", "b"], 2),
        (["a"], ["a", "b"], ["a", "b"], 1),
        (["a", "b"], ["b"], ["a", "b"], 0),
        (["a", "a", "b"], [], ["a", "b"], 1),
    ],
)
def test_pull_secrets(present: list[str] | None, added: list[str], expected: list[str] | None, operations: int) -> None:
    def secrets(names: list[str] | None) -> list[Json] | None:
        return None if names is None else [{"name": name} for name in names]

    answer = injected(sidecarset("s", SHIPPER, imagePullSecrets=secrets(added)), pod(imagePullSecrets=secrets(present)))
    assert answer.pod["spec"]["imagePullSecrets"] == secrets(expected)
    assert answer.rules.count("SS-52") == operations


# --- annotations ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SS-56", "SS-57", "SS-59", "SS-104")
def test_a_pod_from_an_exported_manifest_keeps_its_records() -> None:
    kept = {"updateTimestamp": "2025-01-02T03:04:05Z", "hash": "h", "sidecarSetName": "a", "sidecarList": ["x"]}
    given = pod(
        annotations={
            HASH: json.dumps({"s": {**kept, "sidecarSetName": "s"}, "a": {**kept, "controllerRevision": "a-1"}}),
            HASH_WITHOUT_IMAGE: json.dumps({"a": kept}),
            LIST: "z,a",
        }
    )
    answer = injected(sidecarset("s", SHIPPER, status={"latestRevision": "s-2"}), given)
    assert answer.annotations[LIST] == "a,s,z"
    assert answer.annotations[HASH] == (
        '{"a":{"updateTimestamp":"2025-01-02T03:04:05Z","hash":"h","sidecarSetName":"a","sidecarList":["x"],'
        '"controllerRevision":"a-1"},"s":{"updateTimestamp":"2026-11-21T03:10:17Z","hash":"hash-s","sidecarSetName":"s",'
        '"sidecarList":["shipper"],"controllerRevision":"s-2"}}'
    )
    assert list(answer.record(HASH_WITHOUT_IMAGE)) == ["a", "s"]


@pytest.mark.behaviour("SS-59")
def test_the_second_hash_annotation_is_validated_only_on_injection() -> None:
    given = pod(annotations={HASH_WITHOUT_IMAGE: "[]"})
    refused = World().apply(sidecarset("s", SHIPPER)).create(given)
    assert refused.denied is not None
    assert refused.denied.message.startswith(f"pod(shop/web-0) invalid annotations[{HASH_WITHOUT_IMAGE}] value [],")
    assert World().create(given).denied is None
    patching = sidecarset("s", patchPodMetadata=[{"patchPolicy": "Retain", "annotations": {"k": "v"}}])
    assert World().apply(patching).create(given).denied is None


@pytest.mark.behaviour("SS-79")
def test_entries_of_other_hot_sidecars_are_kept() -> None:
    key = "kruise.io/sidecarset-working-hotupgrade-container"
    sets = sidecarset("s", {"name": "mesh", "upgradeStrategy": HOT})
    assert injected(sets, pod(annotations={key: '{"other":"other-2"}'})).annotations[key] == (
        '{"mesh":"mesh-1","other":"other-2"}'
    )
    assert injected(sets, pod(annotations={key: "{"})).annotations[key] == '{"mesh":"mesh-1"}'


@pytest.mark.behaviour("SS-53")
@pytest.mark.parametrize(("present", "patch"), [("{", "{}"), ("{}", "plain"), ("1 2", '{"a":1}')])
def test_merging_into_invalid_json_refuses_the_pod(present: str, patch: str) -> None:
    patches = [{"patchPolicy": "MergePatchJson", "annotations": {"k": patch}}]
    world = World().apply(sidecarset("s", SHIPPER, patchPodMetadata=patches))
    answer = world.create(pod(annotations={"k": present}))
    assert answer.denied is not None
    assert answer.denied.message.startswith("Pod shop/web-0: SidecarSet s: spec.patchPodMetadata: annotation k: ")
    assert [name for name, _ in world.reported] == ["s"]


# --- resources --------------------------------------------------------------------------------------------------------


def computing(name: str, pattern: str = ".*", **expressions: Any) -> Json:
    policy = {
        "targetContainersMode": "sum",
        "targetContainersNameRegex": pattern,
        "resourcesExpr": expressions or {"limits": {"cpu": "cpu*50%"}},
    }
    return {"name": name, "resourcesPolicy": policy, "resources": {"limits": {"memory": "1Gi"}}}


@pytest.mark.behaviour("SS-60", "SS-61")
def test_injected_sidecars_are_ignored_and_own_resources_replaced() -> None:
    app = {"resources": {"limits": {"cpu": "1"}}}
    native = {"name": "native", "image": "n", "restartPolicy": "Always", **app}
    given = pod(
        containers=[main(**app), main("tool", **app), main("mesh-1", **app)],
        initContainers=[native, {"name": "prep", "image": "p", **app}],
    )
    first = sidecarset("s1", computing("shipper"), initContainers=[{**computing("late"), "restartPolicy": "Always"}])
    second = sidecarset("s2", {"name": "tool"}, {"name": "mesh", "upgradeStrategy": HOT})
    answer = World().apply(first, second).create(given)
    # main and native count; tool and mesh-1 are sidecars' names, prep ends.
    assert answer.container("shipper")["resources"] == {"limits": {"cpu": "1"}}
    assert answer.container("late")["resources"] == {"limits": {"cpu": "1"}}


@pytest.mark.behaviour("SS-60", "SS-78")
def test_both_hot_upgrade_containers_get_computed_resources() -> None:
    sets = sidecarset("s", {**computing("mesh"), "upgradeStrategy": HOT})
    answer = injected(sets, pod(containers=[main(resources={"limits": {"cpu": "2"}})]))
    assert [answer.container(f"mesh-{n}")["resources"] for n in (1, 2)] == [{"limits": {"cpu": "1"}}] * 2


@pytest.mark.behaviour("SS-61")
def test_a_pattern_without_match_refuses_the_pod_with_the_openkruise_message() -> None:
    world = World().apply(sidecarset("s", computing("shipper", "^x")))
    answer = world.create(pod())
    assert answer.denied is not None
    assert answer.denied.message == 'no containers match the regex pattern "^x"'
    assert world.reported == [("s", 'Pod shop/web-0 refused: no containers match the regex pattern "^x"')]


@pytest.mark.behaviour("SS-65")
def test_a_negative_result_refuses_the_pod_with_set_and_container() -> None:
    answer = (
        World()
        .apply(sidecarset("s", computing("shipper", limits={"cpu": "cpu-1"})))
        .create(pod(containers=[main(resources={"limits": {"cpu": "500m"}})]))
    )
    assert answer.denied is not None
    assert answer.denied.message.startswith(
        "Pod shop/web-0: SidecarSet s: container shipper: resourcesPolicy.resourcesExpr.limits.cpu"
    )


# --- one name, one container ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SS-117", "SS-32")
@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ({"containers": ["x"]}, {"containers": ["x"]}, "x"),
        ({"containers": ["x"]}, {"initContainers": ["x"]}, "x"),
        ({"initContainers": ["x"]}, {"initContainers": ["x"]}, "x"),
        ({"hot": ["x"]}, {"containers": ["x-2"]}, "x-2"),
    ],
)
def test_duplicate_container_names_of_two_sets_are_refused(
    first: dict[str, list[str]], second: dict[str, list[str]], name: str
) -> None:
    def bringing(set_name: str, brought: dict[str, list[str]]) -> Json:
        return sidecarset(
            set_name,
            *({"name": n} for n in brought.get("containers", [])),
            *({"name": n, "upgradeStrategy": HOT} for n in brought.get("hot", [])),
            initContainers=[{"name": n} for n in brought.get("initContainers", [])],
        )

    world = World().apply(bringing("s1", first), bringing("s2", second))
    answer = world.create(pod())
    assert answer.denied is not None
    assert answer.denied.message == (
        f"Pod shop/web-0: SidecarSets s1 and s2 both inject a container named {name}; rename it in one of them, or "
        f"narrow a selector so that only one applies"
    )
    assert [name for name, _ in world.reported] == ["s1", "s2"]
    # The Pod is named once.
    assert {message.count("shop/web-0") for _, message in world.reported} == {1}


@pytest.mark.behaviour("SS-21", "SS-30")
@pytest.mark.parametrize(
    ("sets", "given", "kind"),
    [
        (sidecarset("s", {"name": "prep"}), pod(), "init container"),
        (sidecarset("s", initContainers=[{"name": "main"}]), pod(), "container"),
    ],
)
def test_a_sidecar_named_like_a_container_of_the_other_list_is_refused(sets: Json, given: Json, kind: str) -> None:
    answer = World().apply(sets).create(given)
    assert answer.denied is not None
    assert f"which is the name of the Pod's own {kind}; rename one of the two" in answer.denied.message


# --- Pods with nothing in them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [None, []])
def test_null_and_empty_lists_are_filled(nothing: list[Json] | None) -> None:
    sets = sidecarset(
        "s",
        {**SHARING, "volumeMounts": [{"name": "v", "mountPath": "/v"}], "resources": None},
        initContainers=[{"name": "i", "env": None}],
        volumes=[{"name": "v", "emptyDir": {}}],
        imagePullSecrets=[{"name": "r"}],
    )
    fields = ("containers", "initContainers", "volumes", "imagePullSecrets", "readinessGates")
    given = pod(
        **{field: None if nothing is None else [] for field in fields}, annotations=None if nothing is None else {}
    )
    answer = injected(sets, given, every_pod_gated=True)
    assert answer.containers == ["shipper"]
    assert answer.init_containers == ["i"]
    assert answer.volumes == ["v"]
    assert answer.pod["spec"]["imagePullSecrets"] == [{"name": "r"}]
    assert answer.pod["spec"]["readinessGates"] == [{"conditionType": "KruisePodReady"}]


def test_every_operation_has_a_rule_and_a_set() -> None:
    sets = sidecarset(
        "s",
        {**SHIPPER, "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        {"name": "mesh", "upgradeStrategy": HOT},
        initContainers=[{"name": "i"}],
        volumes=[{"name": "v", "emptyDir": {}}],
        imagePullSecrets=[{"name": "r"}],
        patchPodMetadata=[{"patchPolicy": "Overwrite", "annotations": {"k": "v"}}],
    )
    assert injected(sets).rules == [
        "SS-53 SidecarSet s",
        "SS-44 SidecarSet s",
        "SS-42 SidecarSet s",
        "SS-45 SidecarSet s",
        "SS-45 SidecarSet s",
        "SS-48 SidecarSet s",
        "SS-52",
        *["SS-56 SS-57 SS-79"] * 8,
    ]
