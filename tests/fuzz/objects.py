"""Hostile objects and reviews, made from a seed: valid ones, broken in one or more places.

Any client that may write an object or reach a port can send these. There are three sources, from thorough to wild:

- :func:`mistyped`: every field of an object in turn, holding each of :data:`WRONG`;
- :func:`large_pods`: Pods of a given size in bytes, one for each shape that could make a step of admission do too much;
- :func:`hostile` and :func:`reviews`: objects changed in several random places, and endless reviews that carry them.

The same seed gives the same objects. Values that no JSON library can write (thousands of nested levels) are instances
of :class:`Deep`, which :func:`encode` writes.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

Json: TypeAlias = dict[str, Any]
FieldPath: TypeAlias = tuple[str | int, ...]


class Hostile(NamedTuple):
    what: str
    object: Json


class FuzzReview(NamedTuple):
    """One request: its target, how it was made, and its body."""

    path: str
    what: str
    body: bytes


class Deep:
    """A value nested ``depth`` levels deep, as objects or as lists."""

    def __init__(self, depth: int, *, lists: bool = False) -> None:
        opening, closing = ("[", "]") if lists else ('{"x":', "}")
        self.text = f"{opening * depth}1{closing * depth}"


def nested(depth: int, *, lists: bool = False) -> Any:
    """Return such a value as Python objects, for depths that Python can handle."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if lists else {"x": value}
    return value


_MARK: Final = re.compile(r'"\\u0001(\d+)\\u0001"')


def encode(document: Any) -> bytes:
    """Return the JSON of a document, including :class:`Deep` values and lone surrogates."""
    held: list[str] = []

    def mark(value: Any) -> str:
        held.append(value.text)
        return f"\x01{len(held) - 1}\x01"

    text = json.dumps(document, default=mark, separators=(",", ":"))
    return _MARK.sub(lambda found: held[int(found[1])], text).encode("ascii")


def copied(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))


# --- complete objects: every field that pykruise reads ----------------------------------------------------------------

_CONTAINER: Final[Json] = {
    "name": "main",
    "image": "registry.example/main:1",
    "command": ["/main"],
    "args": ["--verbose"],
    "workingDir": "/",
    "restartPolicy": "Always",
    "ports": [{"name": "http", "containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
    "env": [
        {"name": "A", "value": "1"},
        {"name": "KRUISE_CONTAINER_PRIORITY", "value": "1"},
        {"name": "B", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1"}}},
        {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}},
        {"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": False}}},
    ],
    "envFrom": [{"prefix": "P", "configMapRef": {"name": "c", "optional": True}}, {"secretRef": {"name": "s"}}],
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "1Mi"}},
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    "volumeMounts": [
        {"name": "data", "mountPath": "/data", "readOnly": True, "subPathExpr": "$(A)/$(B)"},
        {"name": "data", "mountPath": "/other", "subPath": "x", "mountPropagation": "None"},
    ],
    "volumeDevices": [{"name": "block", "devicePath": "/dev/x"}],
    "livenessProbe": {"httpGet": {"path": "/", "port": "http", "scheme": "HTTP"}, "periodSeconds": 5},
    "readinessProbe": {"tcpSocket": {"port": 80}, "initialDelaySeconds": 1, "failureThreshold": 2},
    "startupProbe": {"exec": {"command": ["true"]}, "timeoutSeconds": 1, "successThreshold": 1},
    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}, "postStart": {"sleep": {"seconds": 1}}},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "Always",
    "securityContext": {"runAsUser": 1, "capabilities": {"add": ["NET_ADMIN"]}, "privileged": False},
    "stdin": False,
    "tty": False,
}
_VOLUMES: Final[list[Json]] = [
    {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {"name": "block", "persistentVolumeClaim": {"claimName": "block", "readOnly": False}},
    {"name": "config", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}], "defaultMode": 420}},
    {"name": "secret", "secret": {"secretName": "s", "optional": True}},
    {"name": "host", "hostPath": {"path": "/", "type": "Directory"}},
    {
        "name": "all",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]
        },
    },
    {"name": "lent", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
]
_HASHES: Final = (
    '{"old":{"updateTimestamp":"2024-01-01T00:00:00Z","hash":"h","sidecarSetName":"old","sidecarList":["a"]}}'
)
_MANAGER: Final = {"manager": "kubectl", "operation": "Apply", "apiVersion": "v1"}
_METADATA: Final[Json] = {
    "name": "sample",
    "generateName": "sample-",
    "uid": "0b1f3e0e-0000-4000-8000-000000000001",
    "resourceVersion": "7",
    "generation": 1,
    "creationTimestamp": "2024-01-01T00:00:00Z",
    "labels": {"app": "web"},
    "annotations": {"note": "x"},
    "finalizers": ["example.com/held"],
    "ownerReferences": [
        {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "u", "controller": True}
    ],
    "managedFields": [{**_MANAGER, "fieldsType": "FieldsV1", "fieldsV1": {"f:x": {}}}],
}
_SELECTOR: Final[Json] = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}, {"key": "app", "operator": "Exists"}],
}


def _object(api_version: str, kind: str, metadata: Json, **parts: Json) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def pod() -> Json:
    """A Pod with every field that admission reads and the labels that :func:`sidecar_set` selects."""
    metadata = copied(_METADATA)
    metadata["namespace"] = "default"
    metadata["annotations"] |= {
        "kruise.io/sidecarset-hash": _HASHES,
        "kruise.io/sidecarset-hash-without-image": _HASHES,
        "kruise.io/sidecarset-injected-list": "old",
        "kruise.io/sidecarset-working-hotupgrade-container": '{"hot":"hot-1"}',
        "example.com/merged": '{"a":{"b":1}}',
    }
    init = copied(_CONTAINER) | {"name": "init"}
    second = {"name": "second", "image": "registry.example/second:1", "env": [{"name": "A", "value": "1"}]}
    spec = {
        "containers": [copied(_CONTAINER), second],
        "initContainers": [init],
        "volumes": copied(_VOLUMES),
        "imagePullSecrets": [{"name": "registry"}],
        "readinessGates": [{"conditionType": "example.com/ready"}],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}],
        "nodeSelector": {"zone": "a"},
        "restartPolicy": "Always",
    }
    status = {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}
    return _object("v1", "Pod", metadata, spec=spec, status=status)


def sidecar_set(version: str = "v1beta1", name: str = "sample") -> Json:
    sidecar = copied(_CONTAINER) | {
        "name": "hot",
        "podInjectPolicy": "BeforeAppContainer",
        "upgradeStrategy": {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "registry.example/empty:1"},
        "shareVolumePolicy": {"type": "enabled"},
        "shareVolumeDevicePolicy": {"type": "enabled"},
        "transferEnv": [
            {"sourceContainerName": "main", "envName": "A", "envNames": ["B", "C"]},
            {"sourceContainerNameFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}, "envName": "A"},
        ],
    }
    del sidecar["restartPolicy"]
    sized = {
        "name": "sized",
        "image": "registry.example/sized:1",
        "resourcesPolicy": {
            "targetContainersMode": "sum",
            "targetContainersNameRegex": ".*",
            "resourcesExpr": {
                "limits": {"cpu": "cpu*10%", "memory": "memory*10%"},
                "requests": {"cpu": "max(cpu*10%, 10m)", "memory": "1Mi"},
            },
        },
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    }
    plain = {"name": "plain", "image": "registry.example/plain:1", "podInjectPolicy": "AfterAppContainer"}
    spec: Json = {
        "selector": copied(_SELECTOR),
        "initContainers": [{"name": "prepare", "image": "registry.example/prepare:1", "command": ["true"]}],
        "containers": [sidecar, sized, plain],
        "volumes": copied(_VOLUMES),
        "imagePullSecrets": [{"name": "sidecars"}],
        "updateStrategy": {
            "type": "RollingUpdate",
            "paused": False,
            "partition": "10%",
            "maxUnavailable": 1,
            "priorityStrategy": {"weightPriority": [{"weight": 1, "matchSelector": {"matchLabels": {"a": "b"}}}]},
            "scatterStrategy": [{"key": "a", "value": "b"}],
        },
        "injectionStrategy": {"paused": False},
        "revisionHistoryLimit": 3,
        "patchPodMetadata": [
            {"annotations": {"example.com/merged": '{"c":2}'}, "patchPolicy": "MergePatchJson"},
            {"annotations": {"example.com/kept": "x"}, "patchPolicy": "Retain"},
        ],
    }
    if version == "v1beta1":
        spec["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
        spec["customVersion"] = "one"
    else:
        spec["namespace"] = "default"
    metadata = copied(_METADATA) | {"name": name}
    status = {"matchedPods": 1, "updatedPods": 1, "readyPods": 1, "latestRevision": "r"}
    return _object(f"apps.kruise.io/{version}", "SidecarSet", metadata, spec=spec, status=status)


def clone_set(version: str = "v1beta1") -> Json:
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": pod()["spec"]}
    rolling: Json = {
        "partition": "50%",
        "maxUnavailable": "20%",
        "maxSurge": 1,
        "paused": False,
        "priorityStrategy": {"orderPriority": [{"orderedKey": "order"}]},
        "scatterStrategy": [{"key": "a", "value": "b"}],
    }
    in_place = {"gracePeriodSeconds": 3}
    scale: Json = {"podsToDelete": ["web-aaaaa"] if version == "v1beta1" else [], "maxUnavailable": "30%"}
    if version == "v1beta1":
        rolling |= {"podUpdatePolicy": "InPlaceIfPossible", "inPlaceUpdateStrategy": in_place}
        strategy: Json = {"type": "RollingUpdate", "rollingUpdate": rolling}
        scale |= {"enablePVCReuse": True, "excludePreparingDelete": True}
    else:
        strategy = {"type": "InPlaceIfPossible", "inPlaceUpdateStrategy": in_place, **rolling}
        scale["disablePVCReuse"] = True
    claim: Json = {"metadata": {"name": "own"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    claim["spec"] |= {"accessModes": ["ReadWriteOnce"]}
    hook = {"labelsHandler": {"hook": "true"}, "finalizersHandler": ["example.com/hook"], "markPodNotReady": True}
    spec: Json = {
        "replicas": 3,
        "selector": copied(_SELECTOR),
        "template": template,
        "volumeClaimTemplates": [claim],
        "scaleStrategy": scale,
        "updateStrategy": strategy,
        "revisionHistoryLimit": 3,
        "minReadySeconds": 1,
        "progressDeadlineSeconds": 60,
        "lifecycle": {"preDelete": hook, "inPlaceUpdate": copied(hook)},
    }
    metadata = copied(_METADATA) | {"name": "web", "namespace": "default"}
    counts = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "updatedReadyReplicas")
    status = dict.fromkeys(counts, 3) | {"conditions": [{"type": "Progressing", "status": "True"}]}
    return _object(f"apps.kruise.io/{version}", "CloneSet", metadata, spec=spec, status=status)


class Target(NamedTuple):
    """A webhook path, an object that it reviews, and its resource."""

    path: str
    make: Callable[[], Json]
    resource: str


#: Every webhook that reads the contents of an object.
TARGETS: Final = (
    Target("/mutate-pod", pod, "pods"),
    Target("/mutate-apps-kruise-io-sidecarset", sidecar_set, "sidecarsets"),
    Target("/mutate-apps-kruise-io-sidecarset", lambda: sidecar_set("v1alpha1"), "sidecarsets"),
    Target("/validate-apps-kruise-io-sidecarset", sidecar_set, "sidecarsets"),
    Target("/validate-apps-kruise-io-sidecarset", lambda: sidecar_set("v1alpha1"), "sidecarsets"),
    Target("/mutate-apps-kruise-io-cloneset", clone_set, "clonesets"),
    Target("/mutate-apps-kruise-io-cloneset", lambda: clone_set("v1alpha1"), "clonesets"),
    Target("/validate-apps-kruise-io-cloneset", clone_set, "clonesets"),
    Target("/validate-apps-kruise-io-cloneset", lambda: clone_set("v1alpha1"), "clonesets"),
)


def review(
    target: Target, obj: Any, *, operation: str = "CREATE", old: Any = None, uid: str = "fuzz", dry_run: bool = False
) -> Json:
    """Return the AdmissionReview that an API server would send to a target."""
    sample = target.make()
    group, _, version = str(sample["apiVersion"]).rpartition("/")
    kind = {"group": group, "version": version, "kind": sample["kind"]}
    namespace = "" if target.resource == "sidecarsets" else "default"
    request: Json = {
        "uid": uid,
        "kind": kind,
        "resource": {"group": group, "version": version, "resource": target.resource},
        "operation": operation,
        "namespace": namespace,
        "name": "sample",
        "userInfo": {"username": "tenant", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": old,
        "dryRun": dry_run,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


# --- one field wrong --------------------------------------------------------------------------------------------------

#: Values of wrong types and extreme values.
WRONG: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    -(2**63) - 1,
    2**64,
    1.5,
    1e308,
    "",
    "x",
    "9" * 5_000,
    "0" * 5_000 + "1",
    "\x00",
    "\u2028<&>",
    "é" * 70,
    "1e400",
    [],
    [None],
    ["x"],
    [[]],
    [{}],
    [7],
    {},
    {"x": "y"},
    {"": None},
    {"x": [{"y": None}]},
)


def fields(value: Any, at: FieldPath = ()) -> Iterator[FieldPath]:
    """Return the path of every value in a document except its root, outer ones first."""
    pending: list[tuple[FieldPath, Any]] = [(at, value)]
    while pending:
        path, found = pending.pop()
        if path:
            yield path
        items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
        pending.extend(reversed([((*path, key), item) for key, item in items]))


def replaced(document: Any, path: FieldPath, value: Any) -> Any:
    """Return the document with another value at a path; the rest is shared with the original."""
    if not path:
        return value
    changed = copy.copy(document)
    changed[path[0]] = replaced(document[path[0]], path[1:], value)
    return changed


def without(document: Any, path: FieldPath) -> Any:
    """Return a document without the value at a path."""
    changed = copy.copy(document)
    if len(path) == 1:
        del changed[path[0]]
    else:
        changed[path[0]] = without(document[path[0]], path[1:])
    return changed


def shown(path: FieldPath) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.lstrip(".")


def mistyped(obj: Json) -> Iterator[Hostile]:
    """Yield an object with each of :data:`WRONG` in each of its fields, and without the field."""
    for path in fields(obj):
        yield Hostile(f"no {shown(path)}", without(obj, path))
        for wrong in WRONG:
            text = repr(wrong)
            yield Hostile(f"{shown(path)} = {text if len(text) < 40 else text[:20] + '…'}", replaced(obj, path, wrong))


def deep_in(obj: Json, depth: int) -> Iterator[Hostile]:
    """Yield an object with a deeply nested value in and next to each field that holds a map or a list."""
    for path in fields(obj):
        found = at(obj, path)
        if isinstance(found, dict):
            yield Hostile(f"{shown(path)}.deep", replaced(obj, path, {**found, "deep": Deep(depth)}))
            yield Hostile(f"{shown(path)} deep", replaced(obj, path, Deep(depth)))
        elif isinstance(found, list):
            yield Hostile(f"{shown(path)}[] deep", replaced(obj, path, [*found, Deep(depth, lists=True)]))


def at(document: Any, path: FieldPath) -> Any:
    for step in path:
        document = document[step]
    return document


# --- large Pods -------------------------------------------------------------------------------------------------------


def _filled(size: int, item: Callable[[int], Any]) -> list[Any]:
    """Return enough items to reach a size in JSON."""
    items: list[Any] = []
    number = 0
    while size > 0:
        made = item(number)
        items.append(made)
        # The repr is as long as the JSON, and much faster.
        size -= 2 + (len(made) + made.count('"') + 2 if isinstance(made, str) else len(repr(made)))
        number += 1
    return items


def _mapping(size: int, entry: Callable[[int], tuple[str, Any]]) -> Json:
    return dict(_filled(size, lambda number: list(entry(number))))


def _variables(size: int) -> Json:
    """Return env variables and mounts that refer to them."""
    return {
        "env": _filled(size * 2 // 5, lambda n: {"name": f"V{n}", "value": ""}),
        "volumeMounts": _filled(
            size * 3 // 5, lambda n: {"name": "data", "mountPath": f"/m{n}", "subPathExpr": f"$(V{n})/$(NONE{n})"}
        ),
    }


def _one_expression(size: int) -> Json:
    return {
        "env": _filled(size // 3, lambda n: {"name": f"V{n}", "value": ""}),
        "volumeMounts": [
            {"name": "data", "mountPath": "/m", "subPathExpr": "".join(f"$(V{n})" for n in range(size // 15))}
        ],
    }


def _priority(value: str) -> Json:
    return {"env": [{"name": "KRUISE_CONTAINER_PRIORITY", "value": value}]}


#: Shape → what the first container gets, for a size in bytes.
_CONTAINER_SHAPES: Final[Mapping[str, Callable[[int], Json]]] = {
    "env": lambda size: {"env": _filled(size, lambda n: {"name": f"V{n}", "value": "x"})},
    "env of one name": lambda size: {"env": _filled(size, lambda n: {"name": "V", "value": "x"})},
    "env and mounts that use it": _variables,
    "one mount with many variables": _one_expression,
    "unfinished variables": lambda size: {
        "volumeMounts": [{"name": "data", "mountPath": "/m", "subPathExpr": "$(" * (size // 2)}]
    },
    "launch priorities": lambda size: {"env": _filled(size, lambda n: _priority("1")["env"][0])},
    "priority of many digits": lambda size: _priority("9" * size),
    "priority of many zeroes": lambda size: _priority("0" * size + "1"),
    "priority of many signs": lambda size: _priority("+" * size),
    "mounts": lambda size: {"volumeMounts": _filled(size, lambda n: {"name": "data", "mountPath": f"/{n}"})},
    "mounts of one path": lambda size: {"volumeMounts": _filled(size, lambda n: {"name": "data", "mountPath": "/a"})},
    "devices": lambda size: {"volumeDevices": _filled(size, lambda n: {"name": "block", "devicePath": f"/dev/{n}"})},
    "ports": lambda size: {"ports": _filled(size, lambda n: {"containerPort": n})},
    "arguments": lambda size: {"args": _filled(size, str)},
    "long value": lambda size: {"env": [{"name": "A", "value": "x" * size}]},
    "resources": lambda size: {"resources": {"limits": _mapping(size, lambda n: (f"r{n}", "1"))}},
    "quantity of many digits": lambda size: {"resources": {"limits": {"cpu": "1" * size, "memory": "1" * size}}},
    "quantity of many decimals": lambda size: {"resources": {"requests": {"cpu": "0." + "0" * size + "1"}}},
    "quantity of a large exponent": lambda size: {"resources": {"requests": {"cpu": "1e" + "9" * size}}},
}
_SPEC_SHAPES: Final[Mapping[str, Callable[[int], Json]]] = {
    "containers": lambda size: {"containers": _filled(size, lambda n: {"name": f"c{n}", "image": "i"})},
    "containers of one name": lambda size: {"containers": _filled(size, lambda n: {"name": "c", "image": "i"})},
    "containers of sidecars' names": lambda size: {
        "containers": _filled(size, lambda n: {"name": ("hot-1", "hot-2", "sized", "plain")[n % 4], "image": "i"})
    },
    "containers with an order": lambda size: {
        "containers": _filled(size, lambda n: {"name": f"c{n}", **_priority(str(n))})
    },
    "containers with resources": lambda size: {
        "containers": _filled(size, lambda n: {"name": f"c{n}", "resources": {"limits": {"cpu": f"{n}.{n}"}}})
    },
    "containers that share mounts": lambda size: {
        "containers": _filled(
            size,
            lambda n: {
                "name": f"c{n}",
                "env": [{"name": f"V{n}", "value": "x"}],
                "volumeMounts": [{"name": "data", "mountPath": f"/{n}", "subPathExpr": f"$(V{n})$(A)"}],
            },
        )
    },
    "init containers": lambda size: {
        "initContainers": _filled(size, lambda n: {"name": f"i{n}", "restartPolicy": "Always"})
    },
    "volumes": lambda size: {"volumes": _filled(size, lambda n: {"name": f"v{n}", "emptyDir": {}})},
    "volumes of one name": lambda size: {"volumes": _filled(size, lambda n: {"name": "v", "emptyDir": {}})},
    "tolerations": lambda size: {"tolerations": _filled(size, lambda n: {"key": f"k{n}", "operator": "Exists"})},
    "readiness gates": lambda size: {"readinessGates": _filled(size, lambda n: {"conditionType": f"example.com/{n}"})},
    "pull secrets": lambda size: {"imagePullSecrets": _filled(size, lambda n: {"name": f"s{n}"})},
    "pull secrets of one name": lambda size: {"imagePullSecrets": _filled(size, lambda n: {"name": "s"})},
    "unknown field": lambda size: {"fieldOfTheFuture": _filled(size, lambda n: {"x": [n]})},
    "nested unknown fields": lambda size: {"fieldOfTheFuture": _filled(size, lambda n: nested(200))},
}


def _entry(number: int) -> str:
    return f'"s{number}":{{"updateTimestamp":"2024-01-01T00:00:00Z","hash":"h","sidecarSetName":"s","sidecarList":[]}}'


def _json_object(size: int, member: Callable[[int], str]) -> str:
    return "{" + ",".join(_filled(size, member)) + "}"


_HASH, _INJECTED = "kruise.io/sidecarset-hash", "kruise.io/sidecarset-injected-list"
_WORKING = "kruise.io/sidecarset-working-hotupgrade-container"
_ORDER, _MERGED = "apps.kruise.io/container-launch-priority", "example.com/merged"
_ANNOTATION_SHAPES: Final[Mapping[str, Callable[[int], Json]]] = {
    "annotations": lambda size: _mapping(size, lambda n: (f"example.com/{n}", "x")),
    "one long annotation": lambda size: {"example.com/a": "x" * size},
    "hash record": lambda size: {_HASH: _json_object(size, _entry)},
    "hash record of the first form": lambda size: {_HASH: _json_object(size, lambda n: f'"s{n}":"h"')},
    "hash record that is none": lambda size: {_HASH: "[" * size},
    "hash record of one set with many sidecars": lambda size: {
        _HASH: '{"s":{"sidecarList":[' + ",".join(_filled(size, lambda n: f'"c{n}"')) + "]}}"
    },
    "injected list": lambda size: {_INJECTED: ",".join(_filled(size, lambda n: f"s{n}"))},
    "injected list of commas": lambda size: {_INJECTED: "," * size},
    "hot upgrades": lambda size: {_WORKING: _json_object(size, lambda n: f'"c{n}":"c{n}-1"')},
    "launch order": lambda size: {_ORDER: _json_object(size, lambda n: f'"c{n}":{n}')},
    "launch order of many digits": lambda size: {_ORDER: '{"main":' + "9" * size + "}"},
    "launch order of many zeroes": lambda size: {_ORDER: '{"main":-' + "0" * size + "}"},
    "launch order nested deep": lambda size: {_ORDER: '{"main":' + "[" * size + "}"},
    "merged annotation": lambda size: {_MERGED: _json_object(size, lambda n: f'"m{n}":{n}')},
    "merged annotation of one key": lambda size: {_MERGED: _json_object(size, lambda n: '"a":1')},
    "merged annotation nested deep": lambda size: {_MERGED: '{"a":' * (size // 12) + "1" + "}" * (size // 12)},
    "merged annotation of many digits": lambda size: {_MERGED: '{"a":' + "9" * size + "}"},
    "merged annotation of space": lambda size: {_MERGED: "{" + " " * size + "}"},
    "merged annotation of quotes": lambda size: {_MERGED: '{"a":"' + '\\"' * (size // 2) + '"}'},
}
_METADATA_SHAPES: Final[Mapping[str, Callable[[int], Json]]] = {
    "labels": lambda size: {"labels": {"app": "web", **_mapping(size, lambda n: (f"l{n}", "x"))}},
    "owner references": lambda size: {
        "ownerReferences": _filled(
            size, lambda n: {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": f"o{n}", "uid": "u"}
        )
    },
    "owner with a long version": lambda size: {
        "ownerReferences": [{"apiVersion": "a" * size, "kind": "x", "name": "o", "uid": "u", "controller": True}]
    },
    "finalizers": lambda size: {"finalizers": _filled(size, lambda n: f"example.com/{n}")},
    "managed fields": lambda size: {"managedFields": _filled(size, lambda n: {"manager": f"m{n}"})},
    "nested managed fields": lambda size: {
        "managedFields": _filled(size, lambda n: {"manager": "m", "fieldsV1": nested(200)})
    },
    "long name": lambda size: {"name": "n" * size},
    "long generated name": lambda size: {"name": "", "generateName": "n" * size},
}


def large_pods(size: int) -> Iterator[Hostile]:
    """Yield a Pod of about ``size`` bytes for each shape, with a second container so that order can matter."""
    for number in range(len(_LARGE_PODS)):
        yield large_pod(number, size)


def large_pod(number: int, size: int) -> Hostile:
    """Return one of :func:`large_pods`; numbers beyond the last start over."""
    what, part, pod_with = _LARGE_PODS[number % len(_LARGE_PODS)]
    return Hostile(what, pod_with(part(size)))


def _small_pod(spec: Json, metadata: Json | None = None) -> Json:
    containers = [{"name": "main", "image": "i"}, {"name": "second", "image": "i"}]
    named = {"name": "large", "namespace": "default", "labels": {"app": "web"}}
    return _object("v1", "Pod", named | (metadata or {}), spec={"containers": containers, **spec})


def _with_first(container: Json) -> Json:
    first = {"name": "main", "image": "i", **container}
    return _small_pod({"containers": [first, {"name": "second", "image": "i"}]})


#: Shape → the function that creates its part of a Pod for a size in bytes, and the one that adds the part to a Pod.
_LARGE_PODS: Final[tuple[tuple[str, Callable[[int], Json], Callable[[Json], Json]], ...]] = (
    *((what, part, _with_first) for what, part in _CONTAINER_SHAPES.items()),
    *((what, part, _small_pod) for what, part in _SPEC_SHAPES.items()),
    *((what, part, lambda made: _small_pod({}, {"annotations": made})) for what, part in _ANNOTATION_SHAPES.items()),
    *((what, part, lambda made: _small_pod({}, made)) for what, part in _METADATA_SHAPES.items()),
)


# --- anything, at random ----------------------------------------------------------------------------------------------

_KEYS: Final = ("", "x", "a/b~c", "name", "metadata", "$ref", "__proto__", "é", "\x00", "k" * 300)


def hostile(random: Random, make: Callable[[], Json] | Json, *, changes: int = 3) -> Hostile:
    """Return an object with one to ``changes`` random changes, and their description."""
    obj = make() if callable(make) else make
    said = []
    for _ in range(random.randint(1, changes)):
        if not obj:
            break
        path = _any_path(random, obj)
        name, change = random.choice(_CHANGES)
        said.append(f"{name} {shown(path)}")
        obj = change(random, obj, path)
        if not isinstance(obj, dict):
            obj = {"object": obj}
    return Hostile("; ".join(said), obj)


def _any_path(random: Random, obj: Any) -> FieldPath:
    """Return the path of a value in a non-empty document; all values are equally likely."""
    found: list[tuple[int, str | int | None, Any]] = [(-1, None, obj)]
    for index, (_, _, value) in enumerate(found):
        if isinstance(value, dict):
            found.extend([(index, key, item) for key, item in value.items()])
        elif isinstance(value, list):
            found.extend([(index, key, item) for key, item in enumerate(value)])
    index = random.randrange(1, len(found))
    path: list[Any] = []
    while index:
        index, key, _ = found[index]
        path.append(key)
    return tuple(reversed(path))


def _wrong(random: Random, obj: Any, path: FieldPath) -> Any:
    return replaced(obj, path, random.choice(WRONG))


def _gone(random: Random, obj: Any, path: FieldPath) -> Any:
    return without(obj, path)


def _swapped(random: Random, obj: Any, path: FieldPath) -> Any:
    """Return a value from elsewhere in the object, of the same type or not."""
    return replaced(obj, path, at(obj, _any_path(random, obj)))


def _repeated(random: Random, obj: Any, path: FieldPath) -> Any:
    found = at(obj, path)
    times = random.choice((2, 3, 100, 2_000))
    if isinstance(found, list):
        return replaced(obj, path, (found * times)[:5_000])
    if isinstance(found, dict):
        return replaced(obj, path, found | {f"k{number}": random.choice(WRONG) for number in range(times)})
    return replaced(obj, path, str(found)[:100] * times)


def _unknown(random: Random, obj: Any, path: FieldPath) -> Any:
    found = at(obj, path)
    added = random.choice((*WRONG, nested(50), nested(260)))
    if isinstance(found, dict):
        return replaced(obj, path, {**found, random.choice(_KEYS): added})
    if isinstance(found, list):
        return replaced(obj, path, [*found, added])
    return replaced(obj, path, added)


def _deep(random: Random, obj: Any, path: FieldPath) -> Any:
    depth = random.choice((20, 150, 260, 300, 900, 1_020, 1_100, 5_000))
    return replaced(obj, path, Deep(depth, lists=random.random() < 0.5))


def _text(random: Random, obj: Any, path: FieldPath) -> Any:
    letters = "az09-_./~$(){}[]\"'\\ \n\t\x00\u2028é😀\ud800%,:+e"
    return replaced(obj, path, "".join(random.choices(letters, k=random.choice((1, 5, 60, 300)))))


def _number(random: Random, obj: Any, path: FieldPath) -> Any:
    numbers = (random.randint(-3, 3), random.getrandbits(70), -random.getrandbits(40), random.random(), 1e-7, -0.0)
    return replaced(obj, path, random.choice(numbers))


_CHANGES: Final[tuple[tuple[str, Callable[[Random, Any, FieldPath], Any]], ...]] = (
    ("wrong type at", _wrong),
    ("wrong type at", _wrong),
    ("nothing at", _gone),
    ("other value at", _swapped),
    ("repeated", _repeated),
    ("unknown field in", _unknown),
    ("deep at", _deep),
    ("odd text at", _text),
    ("odd number at", _number),
)


def reviews(seed: int) -> Iterator[FuzzReview]:
    """Yield requests endlessly: mostly hostile objects in valid reviews, sometimes a broken review."""
    random = Random(seed)
    while True:
        target = random.choice(TARGETS)
        made = hostile(random, target.make)
        old = random.choice((None, target.make(), target.make(), None))
        if old is not None and random.random() < 0.5:
            old = hostile(random, old).object
        operation = "CREATE" if old is None else random.choice(("UPDATE", "UPDATE", "UPDATE", "CREATE"))
        document = review(target, made.object, operation=operation, old=old, dry_run=random.random() < 0.5)
        kind = document["request"]["kind"]
        what = f"{operation} {kind['version']} {kind['kind']}: {made.what}"
        if random.random() < 0.05:
            broken = hostile(random, document, changes=1)
            document, what = broken.object, f"review: {broken.what}"
        body = encode(document)
        if random.random() < 0.01:
            cut = random.randrange(len(body))
            body = body[:cut] + random.choice((b"", b"\xff", b"\xed\xa0\x80")) + body[cut + random.choice((0, 1, 9)) :]
            what += f"; bytes changed at {cut}"
        yield FuzzReview(target.path, what, body)
