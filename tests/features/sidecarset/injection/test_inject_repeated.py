"""Injection is repeatable: a second pass over its own result, at the same moment, changes nothing (D-21).

The exceptions are those that D-21 names (launch priority, a recorded revision, env transferred from a sidecar) and
one of the same kind: what is shared from an app container that a sidecar of its name then replaces.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.features.admitting import INJECTED, Json, World, main, pod, sidecarset

PATHS = st.sampled_from(["/a", "/b", "/c"])
MOUNTS = st.lists(st.builds(lambda path: {"name": path[1:], "mountPath": path}, PATHS), max_size=2, unique_by=str)
DEVICES = st.lists(st.builds(lambda path: {"name": path[1:], "devicePath": path}, PATHS), max_size=2, unique_by=str)
ENV = st.lists(
    st.builds(lambda name, value: {"name": name, "value": value}, st.sampled_from("XY"), st.sampled_from("12")),
    max_size=2,
    unique_by=lambda entry: entry["name"],
)
SWITCH = st.sampled_from([{"type": "enabled"}, {"type": "disabled"}])
UPGRADE = st.sampled_from(
    [{"upgradeType": "ColdUpgrade"}, {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "empty:1"}]
)
POLICY = {
    "targetContainersMode": "sum",
    "targetContainersNameRegex": "^main$",
    "resourcesExpr": {"requests": {"cpu": "cpu*50%"}},
}


def sidecars(names: str) -> st.SearchStrategy[list[Json]]:
    fields: dict[str, Any] = {
        "podInjectPolicy": st.sampled_from(["BeforeAppContainer", "AfterAppContainer"]),
        "env": ENV,
        "volumeMounts": MOUNTS,
        "volumeDevices": DEVICES,
        "shareVolumePolicy": SWITCH,
        "shareVolumeDevicePolicy": SWITCH,
        "upgradeStrategy": UPGRADE,
        "transferEnv": st.just([{"sourceContainerName": "main", "envNames": ["X", "Y"]}]),
        "resourcesPolicy": st.just(POLICY),
        "restartPolicy": st.just("Always"),
    }
    one = st.builds(
        lambda name, rest: {"name": name, **rest}, st.sampled_from(names), st.fixed_dictionaries({}, optional=fields)
    )
    return st.lists(one, max_size=2, unique_by=lambda container: str(container["name"]))


SETS = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True).flatmap(
    lambda numbers: st.tuples(
        *(
            st.builds(
                lambda name, containers, inits, secrets, patches: sidecarset(
                    name,
                    *containers,
                    initContainers=inits,
                    volumes=[{"name": volume, "emptyDir": {}} for volume in "abc"],
                    imagePullSecrets=secrets,
                    patchPodMetadata=patches,
                ),
                st.just(f"set-{number}"),
                sidecars("pqr"[number] + "s"),
                sidecars("xyz"[number]),
                st.lists(st.sampled_from([{"name": "r1"}, {"name": "r2"}]), max_size=2),
                st.lists(
                    st.sampled_from(
                        [
                            {"patchPolicy": "Overwrite", "annotations": {f"own-{number}": "v"}},
                            {"patchPolicy": "Retain", "annotations": {"shared": f"v{number}"}},
                            {
                                "patchPolicy": "MergePatchJson",
                                "annotations": {"json": f'{{"k{number}":{{"n":null, "m":1}}}}'},
                            },
                        ]
                    ),
                    max_size=3,
                    unique_by=lambda patch: str(patch["patchPolicy"]),
                ),
            )
            for number in numbers
        )
    )
)
APP = st.builds(
    lambda name, env, mounts, devices: main(name, env=env, volumeMounts=mounts, volumeDevices=devices),
    st.sampled_from(["main", "second", "s", "p-1"]),
    ENV | st.just([INJECTED]),
    MOUNTS,
    DEVICES,
)
PODS = st.builds(
    lambda containers, annotations, secrets, volumes: pod(
        containers=containers,
        annotations=annotations,
        imagePullSecrets=secrets,
        volumes=volumes,
        initContainers=None,
    ),
    st.lists(APP, min_size=1, max_size=3, unique_by=lambda container: container["name"]),
    st.none() | st.sampled_from([{}, {"json": '{"z":1, "a":2}'}, {"shared": ""}]),
    st.none() | st.lists(st.just({"name": "r1"}), max_size=2),
    st.none() | st.just([{"name": "a", "emptyDir": {}}]),
)


@pytest.mark.behaviour("D-21", "PW-5", "PW-30")
@settings(max_examples=150, deadline=None)
@given(sets=SETS, given_pod=PODS, sort_by_name=st.booleans())
def test_a_second_injection_changes_nothing(sets: tuple[Json, ...], given_pod: Json, sort_by_name: bool) -> None:
    brought = {c["name"] for s in sets for c in s["spec"]["containers"]}
    brought |= {f"{name}-{number}" for name in brought for number in (1, 2)}
    assume(not brought & {container["name"] for container in given_pod["spec"]["containers"]} or not _shares(sets))
    world = World(sort_by_name=sort_by_name, every_pod_gated=True).apply(*sets)
    first = world.create(given_pod)
    if first.denied is not None:
        return  # two sets with one name, a policy without a target
    assert first.pod["fieldOfTheFuture"] == {"kept": True}
    second = world.create(first.pod)
    assert second.denied is None, second.denied
    assert second.operations == []


def _shares(sets: tuple[Json, ...]) -> bool:
    return any(
        (container.get(policy) or {}).get("type") == "enabled"
        for one in sets
        for field in ("containers", "initContainers")
        for container in one["spec"][field]
        for policy in ("shareVolumePolicy", "shareVolumeDevicePolicy")
    )


@pytest.mark.behaviour("D-21")
def test_a_replaced_shared_container_is_the_exception() -> None:
    sharing = {"name": "s", "shareVolumePolicy": {"type": "enabled"}}
    world = World().apply(sidecarset("set", sharing))
    first = world.create(pod(containers=[main("s")]))
    assert first.mounts("s") == ["data→/data", "logs→/var/log/app"]
    assert world.create(first.pod).mounts("s") == []
