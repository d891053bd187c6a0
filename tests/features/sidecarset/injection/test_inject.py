"""Injection rules that neither recorded answers nor random cases cover, and the messages of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.sidecarset.injection import inject
from tests.features.admitting import HASH, HASH_WITHOUT_IMAGE, INJECTED, LIST, NOW, Json, World, main, pod, sidecarset

SHIPPER = {"name": "shipper"}
SHARING = {**SHIPPER, "shareVolumePolicy": {"type": "enabled"}}
HOT = {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "e:1"}


def injected(sets: Json, given: Json | None = None, **world: Any) -> Any:
    answer = World(**world).apply(sets).create(given or pod())
    assert answer.denied is None, answer.denied
    return answer


@pytest.mark.behaviour("SS-42", "SS-46", "SS-56", "SS-57", "SS-58")
def test_sidecars_are_placed_before_and_after_the_app_container() -> None:
    metrics = {"name": "metrics", "podInjectPolicy": "AfterAppContainer"}
    answer = injected(sidecarset("s", SHIPPER, metrics))
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


@pytest.mark.behaviour("SS-56", "SS-57")
def test_a_set_without_sidecars_is_listed_beside_one_that_injects() -> None:
    patches = [{"patchPolicy": "Overwrite", "annotations": {"k": "v"}}]
    answer = World().apply(sidecarset("a", patchPodMetadata=patches), sidecarset("b", SHIPPER)).create(pod())
    assert answer.annotations[LIST] == "a,b"
    assert answer.record().keys() == {"b"}


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
        container = "main" if own_env else "second"
        assert answer.refusal.message == (
            f"SidecarSet s: container shipper cannot share mount {'/one' if own_env else '/two'} of container "
            f"{container}: its subPathExpr uses $(DIR), which has one value from container {container} and another "
            f"from {origin}; use one value, or set shareVolumePolicy.type to disabled"
        )


@pytest.mark.behaviour("PW-35")
def test_what_sidecars_share_with_a_pod_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pod of 3 MB may have 90,000 mounts, and match fifty sets."""
    monkeypatch.setattr(inject, "MAX_SHARED", 20)
    mounts = [{"name": "logs", "mountPath": f"/{number}"} for number in range(4)]
    given = pod(containers=[main("main", volumeMounts=mounts)])
    sets = [sidecarset(f"s{number}", {**SHARING, "name": f"shipper-{number}"}) for number in range(5)]
    assert World().apply(*sets[:4]).create(given).denied is None
    assert World().apply(*sets).create(given).refusal.message == (
        "Pod shop/web-0: its sidecars would have more than 20 mounts, devices and variables, including shared ones"
    )


def computing(name: str, pattern: str = ".*", **expressions: Any) -> Json:
    policy = {
        "targetContainersMode": "sum",
        "targetContainersNameRegex": pattern,
        "resourcesExpr": expressions or {"limits": {"cpu": "cpu*50%"}},
    }
    return {"name": name, "resourcesPolicy": policy, "resources": {"limits": {"memory": "1Gi"}}}


@pytest.mark.behaviour("SS-60", "SS-62")
@pytest.mark.parametrize(("limits", "expected"), [({"cpu": "1"}, {"limits": {"cpu": "500m"}}), ({}, {})])
def test_computed_resources_replace_those_of_the_sidecar(limits: dict[str, str], expected: Json) -> None:
    given = pod(containers=[main(resources={"limits": limits})])
    answer = injected(sidecarset("s", computing("shipper")), given)
    assert answer.container("shipper")["resources"] == expected


def test_refusals_are_left_to_the_log_of_reviews_which_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    answer = World().apply(sidecarset("s", computing("shipper", "^x"))).create(pod(), dry_run=True)
    assert answer.denied is not None
    assert not caplog.records


@pytest.mark.behaviour("SS-61")
def test_a_pattern_without_match_refuses_the_pod_with_the_openkruise_message() -> None:
    world = World().apply(sidecarset("s", computing("shipper", "^x")))
    answer = world.create(pod())
    assert answer.refusal.message == 'no containers match the regex pattern "^x"'
    assert world.reported == [("s", 'Pod shop/web-0 refused: no containers match the regex pattern "^x"')]


@pytest.mark.behaviour("SS-65")
def test_a_negative_result_refuses_the_pod_with_set_and_container() -> None:
    world = World().apply(sidecarset("s", computing("shipper", limits={"cpu": "cpu-1"})))
    answer = world.create(pod(containers=[main(resources={"limits": {"cpu": "500m"}})]))
    assert answer.refusal.message == (
        "Pod shop/web-0: SidecarSet s: container shipper: resourcesPolicy.resourcesExpr.limits.cpu for cpu=500m: "
        'expression "cpu-1" gives -500m, which is negative'
    )


@pytest.mark.behaviour("SS-68", "SS-120")
def test_a_missing_injection_revision_refuses_the_pod_and_reports_it_on_the_set() -> None:
    choice = {"revision": {"revisionName": "r1"}}
    world = World().apply(sidecarset("s", SHIPPER, injectionStrategy=choice))
    answer = world.create(pod())
    assert answer.refusal.code == 422
    assert answer.refusal.message == (
        "SidecarSet s: spec.injectionStrategy.revision.revisionName r1: ControllerRevision not found; Pods it matches "
        "cannot be created until the field names an existing revision or is removed"
    )
    assert world.reported == [("s", f"Pod shop/web-0 refused: {answer.refusal.message}")]


@pytest.mark.behaviour("SS-59")
def test_an_unreadable_hash_annotation_refuses_the_pod() -> None:
    world = World().apply(sidecarset("s", SHIPPER))
    answer = world.create(pod(annotations={HASH: "oops"}))
    assert answer.refusal.code == 400
    assert answer.refusal.message.startswith(
        f"pod(shop/web-0) invalid annotations[{HASH}] value oops, unmarshal failed: "
    )
    assert world.reported == []  # the Pod is at fault, not the set


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
    assert answer.refusal.message == (
        f"Pod shop/web-0: SidecarSets s1 and s2 both inject a container named {name}; rename it in one of them, or "
        f"narrow a selector so that only one applies"
    )
    assert [name for name, _ in world.reported] == ["s1", "s2"]
    # The Pod is named once.
    assert {message.count("shop/web-0") for _, message in world.reported} == {1}


@pytest.mark.behaviour("SS-21", "SS-30")
@pytest.mark.parametrize(
    ("sets", "kind"),
    [
        (sidecarset("s", {"name": "prep"}), "init container"),
        (sidecarset("s", initContainers=[{"name": "main"}]), "container"),
    ],
)
def test_a_sidecar_named_like_a_container_of_the_other_list_is_refused(sets: Json, kind: str) -> None:
    answer = World().apply(sets).create(pod())
    assert f"which is the name of the Pod's own {kind}; rename one of the two" in answer.refusal.message


@pytest.mark.behaviour("SS-34", "SS-45")
def test_hot_upgrade_is_ignored_for_init_containers_that_end() -> None:
    sets = sidecarset("s", initContainers=[{"name": "once", "upgradeStrategy": HOT}])
    answer = injected(sets)
    assert answer.init_containers == ["prep", "once"]
    assert not any("hotupgrade" in key for key in answer.annotations)


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


@pytest.mark.behaviour("SS-79")
def test_entries_of_other_hot_sidecars_are_kept() -> None:
    key = "kruise.io/sidecarset-working-hotupgrade-container"
    sets = sidecarset("s", {"name": "mesh", "upgradeStrategy": HOT})
    assert injected(sets, pod(annotations={key: '{"mesh":"mesh-2","other":"other-2"}'})).annotations[key] == (
        '{"mesh":"mesh-1","other":"other-2"}'
    )
    assert injected(sets, pod(annotations={key: "{"})).annotations[key] == '{"mesh":"mesh-1"}'


@pytest.mark.behaviour("SS-47")
@pytest.mark.parametrize(
    "transfer",
    [
        {"sourceContainerName": "main", "envName": "", "envNames": [""]},
        {"sourceContainerNameFrom": {"fieldRef": {"fieldPath": "metadata.name"}}, "envName": "A"},
    ],
    ids=["no names", "other path"],
)
def test_an_unusable_transfer_adds_no_env(transfer: Json) -> None:
    assert injected(sidecarset("s", {**SHIPPER, "transferEnv": [transfer]})).env("shipper") == ["IS_INJECTED=true"]


@pytest.mark.behaviour("SS-54", "PW-7", "PW-11", "PW-13")
def test_a_set_may_order_the_start_of_sidecars_and_app() -> None:
    patches = [{"patchPolicy": "Overwrite", "annotations": {"apps.kruise.io/container-launch-priority": "Ordered"}}]
    answer = injected(sidecarset("s", SHIPPER, patchPodMetadata=patches))
    keys = {"name": "web-0-barrier", "key": "p_0"}, {"name": "web-0-barrier", "key": "p_-1"}
    barriers = [answer.container(name)["env"][-1] for name in ("shipper", "main")]
    assert barriers == [{"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": key}} for key in keys]
