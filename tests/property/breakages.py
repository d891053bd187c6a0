"""Deliberate errors: Pods and sets that a rule rejects, and a few that only look invalid."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.property.case import Json
from tests.property.expressions import BROKEN
from tests.property.generate_sets import SetMaker

Breakage = Callable[[SetMaker, list[Json]], None]
BAD_HASHES = ("oops", "[]", '{"s":1}', '{"s":["x"]}', '{"s":"x","t":{"hash":"y"}}')


def _annotate(pod: Json, **annotations: str) -> None:
    pod["metadata"].setdefault("annotations", {}).update(annotations)


def _bad_merge(pod_value: tuple[str, ...], texts: tuple[str, ...]) -> Breakage:
    """The value in the Pod or in the patch is not JSON. [SS-53]"""

    def break_(maker: SetMaker, sets: list[Json]) -> None:
        entry = {"annotations": {"merge-3": maker.world.pick(*texts)}, "patchPolicy": "MergePatchJson"}
        sets[0]["spec"].setdefault("patchPodMetadata", []).append(entry)
        maker.world.pod_breakages.append(lambda pod: _annotate(pod, **{"merge-3": maker.world.pick(*pod_value)}))

    return break_


def _bad_hash(key: str) -> Breakage:
    """The annotation is invalid. [SS-59]"""

    def break_(maker: SetMaker, sets: list[Json]) -> None:
        maker.world.pod_breakages.append(lambda pod: _annotate(pod, **{key: maker.world.pick(*BAD_HASHES)}))

    return break_


def _bad_hash_unread(maker: SetMaker, sets: list[Json]) -> None:
    """Nothing is injected, so the invalid annotation is not read. [SS-59]"""
    maker.world.labels.update(app="db", gone="x")
    maker.world.pod_breakages.append(lambda pod: _annotate(pod, **{"kruise.io/sidecarset-hash": "oops"}))


def _bad_policy(text: Callable[[str], str], pattern: str = ".*") -> Breakage:
    """Requests are always computed, so the expression is always evaluated. [SS-61, SS-64, SS-65]"""

    def break_(maker: SetMaker, sets: list[Json]) -> None:
        resource = maker.world.pick("cpu", "memory")
        maker.world.pick(*sets[0]["spec"]["containers"])["resourcesPolicy"] = {
            "targetContainersMode": maker.world.pick("sum", "max"),
            "targetContainersNameRegex": pattern,
            "resourcesExpr": {"requests": {resource: text(resource)}},
        }

    return break_


def _two_values(maker: SetMaker, sets: list[Json]) -> None:
    """One variable has two values. [SS-50]"""
    sets[0]["spec"]["containers"][0]["shareVolumePolicy"] = {"type": "enabled"}

    def change(pod: Json) -> None:
        containers = [c for c in pod["spec"]["containers"] if c["name"] != "former"]
        if len(containers) < 2:
            containers.append({"name": "second", "image": "busybox"})
            pod["spec"]["containers"].append(containers[-1])
        for number, container in enumerate(containers[:2]):
            mount = {"name": "logs", "mountPath": f"/side/{maker.world.pick('one', number)}", "subPathExpr": "$(SIDE)"}
            container.setdefault("volumeMounts", []).append(mount)
            container.setdefault("env", []).append({"name": "SIDE", "value": f"side-{number}"})
        volumes = pod["spec"].setdefault("volumes", [])
        if all(v["name"] != "logs" for v in volumes):
            volumes.append({"name": "logs", "emptyDir": {}})

    maker.world.pod_breakages.append(change)


def _bad_priority(env: tuple[Json, ...]) -> Breakage:
    """A priority is invalid. [PW-14]"""

    def break_(maker: SetMaker, sets: list[Json]) -> None:
        def change(pod: Json) -> None:
            container = maker.world.pick(*pod["spec"]["containers"])
            value = {"name": "KRUISE_CONTAINER_PRIORITY", **copy.deepcopy(maker.world.pick(*env))}
            others = [e for e in container.get("env") or [] if e["name"] != value["name"]]
            container["env"] = [*others, value]

        maker.world.pod_breakages.append(change)

    return break_


def _bad_launch_priority(*texts: str) -> Breakage:
    """A priority is out of range. [PW-15]"""

    def break_(maker: SetMaker, sets: list[Json]) -> None:
        text = maker.world.pick(*texts).replace("MAIN", maker.world.apps[0])
        key = "apps.kruise.io/container-launch-priority"
        maker.world.pod_breakages.append(lambda pod: _annotate(pod, **{key: text}))

    return break_


def _same_name(maker: SetMaker, sets: list[Json]) -> None:
    """Two sets have a container of the same name, although they passed the overlap check. [SS-117]"""
    if len(sets) < 2:
        sets.append(maker.sidecar_set("twin-set"))
    maker.certain(sets[1])
    sets[1]["spec"]["containers"][0]["name"] = sets[0]["spec"]["containers"][0]["name"]


def _other_list(maker: SetMaker, sets: list[Json]) -> None:
    """A sidecar has the name of an init container of the Pod, or an init sidecar that of a container. [SS-21]"""
    container = {"name": sets[0]["spec"]["containers"][0]["name"], "image": "busybox"}
    if not sets[0]["spec"].get("initContainers") or maker.world.chance(50):
        sets[0]["spec"]["containers"][0].pop("upgradeStrategy", None)
        maker.world.pod_breakages.append(lambda pod: pod["spec"].setdefault("initContainers", []).append(container))
    else:
        container["name"] = sets[0]["spec"]["initContainers"][0]["name"]
        maker.world.pod_breakages.append(lambda pod: pod["spec"]["containers"].append(container))


def _empty_set(maker: SetMaker, sets: list[Json]) -> None:
    """A set without sidecars only patches metadata. [SS-41]"""
    sets[1:] = []
    for kind in ("containers", "initContainers"):
        sets[0]["spec"].pop(kind, None)
    sets[0]["spec"]["patchPodMetadata"] = maker.metadata_patches()


EXPRESSION_BREAKAGES: dict[str, Breakage] = {f"expression {n}": _bad_policy(text) for n, text in enumerate(BROKEN)}
INTEGERS: tuple[Json, ...] = ({}, *({"value": v} for v in ("", " 1", "abc", "1.5", "0x1", "1_0", "--1")))
BREAKAGES: dict[str, Breakage] = {
    "pod annotation is no JSON": _bad_merge(("{", "plain", '{"a":1,}'), ('{"a":1}',)),
    "patch is no JSON": _bad_merge(('{"a":1}',), ("{", "plain", '{"a":1,}')),
    "hash": _bad_hash("kruise.io/sidecarset-hash"),
    "hash without image": _bad_hash("kruise.io/sidecarset-hash-without-image"),
    "hash unread": _bad_hash_unread,
    "no target": _bad_policy(lambda _: "100", "^none$"),
    **EXPRESSION_BREAKAGES,
    "two values": _two_values,
    "priority": _bad_priority(INTEGERS),
    "priority valueFrom": _bad_priority(({"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},)),
    "priority range": _bad_priority(({"value": "2147483648"}, {"value": "-2147483648"}, {"value": "9" * 30})),
    "launch priority": _bad_launch_priority("{", '{"MAIN":"x"}', '{"MAIN":1.5}', '{"MAIN":true}', '{"MAIN":null}'),
    "launch priority range": _bad_launch_priority('{"MAIN":2147483648}', '{"MAIN":-2147483648}'),
    "launch priority name": _bad_launch_priority('{"nobody":1}', '{"MAIN":1,"no body":2}'),
    "same name": _same_name,
    "name of the other list": _other_list,
    "empty set": _empty_set,
}
