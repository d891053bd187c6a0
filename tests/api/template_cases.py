"""Valid and invalid containers and volumes, for the structural check and for a real API server."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

VOLUMES: list[Json] = [{"name": "data", "emptyDir": {}}, {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}}]


def container(name: str = "a", **fields: Any) -> Json:
    return {"name": name, "image": "i", **fields}


def with_container(**fields: Any) -> Json:
    return {"containers": [container(**fields)], "volumes": VOLUMES}


def with_init(**fields: Any) -> Json:
    return {"containers": [container("main")], "initContainers": [container("i", **fields)], "volumes": VOLUMES}


def with_volume(**source: Any) -> Json:
    return {"containers": [container()], "volumes": [{"name": "v", **source}]}


def with_port(**port: Any) -> Json:
    return with_container(ports=[port])


def with_env(**env: Any) -> Json:
    return with_container(env=[env])


def with_mount(*mounts: Json, **fields: Any) -> Json:
    return with_container(volumeMounts=list(mounts), **fields)


def with_probe(kind: str = "livenessProbe", **probe: Any) -> Json:
    return with_container(**{kind: probe})


EXEC = {"exec": {"command": ["true"]}}

CASES: dict[str, Json] = {
    "plain": with_container(),
    "two containers and an init container": {
        "containers": [container("a"), container("b")],
        "initContainers": [container("c")],
    },
    "name missing": {"containers": [{"image": "i"}]},
    "name not a label": with_container(name="Bad_Name"),
    "name with a dot": with_container(name="a.b"),
    "name too long": with_container(name="a" * 64),
    "name twice": {"containers": [container("a"), container("a")]},
    "name twice across lists": {"containers": [container("a")], "initContainers": [container("a")]},
    "init name twice": {"containers": [container("a")], "initContainers": [container("b"), container("b")]},
    "image missing": {"containers": [{"name": "a"}], "initContainers": [{"name": "b"}]},
    "pull policy unknown": with_container(imagePullPolicy="Sometimes"),
    "message policy unknown": with_container(terminationMessagePolicy="Nowhere"),
    "restart policy of a container": with_container(restartPolicy="Always"),
    "ports": with_container(ports=[{"containerPort": 80, "name": "http"}, {"containerPort": 80, "name": "http"}]),
    "port name wrong": with_port(containerPort=80, name="-a--b-"),
    "port name too long": with_port(containerPort=80, name="a" * 16),
    "port missing": with_port(name="http"),
    "port out of range": with_port(containerPort=70000, hostPort=70000),
    "port protocol unknown": with_port(containerPort=80, protocol="ICMP"),
    "host port twice": {
        "containers": [
            container("a", ports=[{"containerPort": 1, "hostPort": 80}]),
            container("b", ports=[{"containerPort": 2, "hostPort": 80}]),
        ]
    },
    "env name missing": with_env(value="x"),
    "env name wrong": with_env(name="a=b", value="x"),
    "env name unusual but fine": with_env(name="1.a b", value="x"),
    "env twice": with_container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    "env without source": with_env(name="A", valueFrom={}),
    "env value and source": with_env(name="A", value="x", valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}),
    "env two sources": with_env(
        name="A", valueFrom={"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "s", "key": "k"}}
    ),
    "env field unknown": with_env(name="A", valueFrom={"fieldRef": {"fieldPath": "spec.unknown"}}),
    "env field not for env": with_env(name="A", valueFrom={"fieldRef": {"fieldPath": "status.phase"}}),
    "env field old name": with_env(name="A", valueFrom={"fieldRef": {"fieldPath": "spec.host"}}),
    "env field missing": with_env(name="A", valueFrom={"fieldRef": {"fieldPath": ""}}),
    "env field version": with_env(name="A", valueFrom={"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}),
    "env label": with_env(name="A", valueFrom={"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}),
    "env label wrong": with_env(name="A", valueFrom={"fieldRef": {"fieldPath": "metadata.labels['a b']"}}),
    "env annotation wrong": with_env(name="A", valueFrom={"fieldRef": {"fieldPath": "metadata.annotations['A B']"}}),
    "env subscript of something else": with_env(name="A", valueFrom={"fieldRef": {"fieldPath": "spec.x['a']"}}),
    "env resource": with_env(name="A", valueFrom={"resourceFieldRef": {"resource": "limits.cpu"}}),
    "env resource unknown": with_env(name="A", valueFrom={"resourceFieldRef": {"resource": "limits.gpu"}}),
    "env resource missing": with_env(name="A", valueFrom={"resourceFieldRef": {"resource": ""}}),
    "env key wrong": with_env(name="A", valueFrom={"configMapKeyRef": {"name": "Bad_", "key": "a b"}}),
    "env key missing": with_env(name="A", valueFrom={"secretKeyRef": {"name": "", "key": ""}}),
    "env from": with_container(envFrom=[{"configMapRef": {"name": "c"}}, {"prefix": "P_", "secretRef": {"name": "s"}}]),
    "env from nothing": with_container(envFrom=[{"prefix": "a=b"}]),
    "env from both": with_container(envFrom=[{"configMapRef": {"name": "c"}, "secretRef": {"name": ""}}]),
    "mounts": with_mount({"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b", "subPath": "x"}),
    "mount without a volume": with_mount({"name": "nope", "mountPath": "/a"}),
    "mount without a name": with_mount({"name": "", "mountPath": ""}),
    "mount path twice": with_mount({"name": "data", "mountPath": "/a"}, {"name": "claim", "mountPath": "/a"}),
    "mount sub path": with_mount({"name": "data", "mountPath": "/a", "subPath": "/x/../y"}),
    "mount both sub paths": with_mount({"name": "data", "mountPath": "/a", "subPath": "x", "subPathExpr": "../$(A)"}),
    "mount propagation unknown": with_mount({"name": "data", "mountPath": "/a", "mountPropagation": "Some"}),
    "mount propagation unprivileged": with_mount(
        {"name": "data", "mountPath": "/a", "mountPropagation": "Bidirectional"}
    ),
    "mount recursive": with_mount({"name": "data", "mountPath": "/a", "recursiveReadOnly": "Enabled"}),
    "mount recursive and propagated": with_mount(
        {
            "name": "data",
            "mountPath": "/a",
            "readOnly": True,
            "recursiveReadOnly": "IfPossible",
            "mountPropagation": "HostToContainer",
        }
    ),
    "mount recursive unknown": with_mount({"name": "data", "mountPath": "/a", "recursiveReadOnly": "Maybe"}),
    "device": with_container(volumeDevices=[{"name": "claim", "devicePath": "/dev/x"}]),
    "device of no claim": with_container(volumeDevices=[{"name": "data", "devicePath": "/dev/x"}]),
    "device without a volume": with_container(volumeDevices=[{"name": "nope", "devicePath": ""}]),
    "device twice": with_container(
        volumeDevices=[{"name": "claim", "devicePath": "/x"}, {"name": "claim", "devicePath": "/x"}]
    ),
    "device backstep": with_container(volumeDevices=[{"name": "claim", "devicePath": "/dev/../x"}]),
    "device and mount": with_mount(
        {"name": "claim", "mountPath": "/x"}, volumeDevices=[{"name": "claim", "devicePath": "/x"}]
    ),
    "requests": with_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
    "resource unknown": with_container(resources={"limits": {"gpu": "1"}}),
    "resource extended": with_container(resources={"limits": {"example.com/gpu": "1"}}),
    "resource extended unequal": with_container(
        resources={"limits": {"example.com/gpu": "2"}, "requests": {"example.com/gpu": "1"}}
    ),
    "resource extended without limit": with_container(resources={"requests": {"example.com/gpu": "1"}}),
    "resource extended fraction": with_container(resources={"limits": {"example.com/gpu": "500m"}}),
    "resource negative": with_container(resources={"limits": {"cpu": "-1"}}),
    "liveness": with_probe(**EXEC),
    "liveness without handler": with_probe(periodSeconds=1),
    "liveness two handlers": with_probe(tcpSocket={"port": 80}, **EXEC),
    "liveness success threshold": with_probe(successThreshold=2, **EXEC),
    "liveness negative": with_probe(initialDelaySeconds=-1, periodSeconds=-1, **EXEC),
    "liveness grace": with_probe(terminationGracePeriodSeconds=0, **EXEC),
    "readiness success threshold": with_probe("readinessProbe", successThreshold=2, **EXEC),
    "readiness grace": with_probe("readinessProbe", terminationGracePeriodSeconds=1, **EXEC),
    "startup defaulted": with_probe("startupProbe", httpGet={"port": "http"}),
    "startup success threshold": with_probe("startupProbe", successThreshold=3, **EXEC),
    "probe command missing": with_probe(exec={}),
    "probe port wrong": with_probe(httpGet={"port": 0, "scheme": "FTP"}),
    "probe port name wrong": with_probe(tcpSocket={"port": "not-a-port-name-at-all"}),
    "probe header wrong": with_probe(httpGet={"port": 80, "httpHeaders": [{"name": "a b", "value": "c"}]}),
    "probe grpc": with_probe(grpc={"port": 70000}),
    "lifecycle": with_container(lifecycle={"postStart": EXEC, "preStop": {"sleep": {"seconds": 600}}}),
    "lifecycle empty hook": with_container(lifecycle={"preStop": {}}),
    "lifecycle sleep negative": with_container(lifecycle={"preStop": {"sleep": {"seconds": -1}}}),
    "init": with_init(),
    "init restart policy": with_init(restartPolicy="OnFailure"),
    "init with probe": with_init(livenessProbe=EXEC, lifecycle={"preStop": EXEC}),
    "native sidecar with probes": with_init(
        restartPolicy="Always", livenessProbe=EXEC, startupProbe=EXEC, lifecycle={"preStop": EXEC}
    ),
    "init mount": with_init(volumeMounts=[{"name": "nope", "mountPath": "/a"}]),
    "security": with_container(securityContext={"runAsUser": -1, "runAsGroup": 2**31}),
    "security escalation": with_container(securityContext={"privileged": False, "allowPrivilegeEscalation": False}),
    "volume without a source": with_volume(),
    "volume names": {
        "containers": [container()],
        "volumes": [{"name": ""}, {"name": "a.b"}, {"name": "v"}, {"name": "v"}, {}],
    },
    "volume two sources": with_volume(emptyDir={}, secret={"secretName": "s"}),
    "volume empty dir": with_volume(emptyDir={"sizeLimit": "-1"}),
    "volume host path": with_volume(hostPath={"path": "/a/../b", "type": "Anything"}),
    "volume host path missing": with_volume(hostPath={"path": ""}),
    "volume secret": with_volume(secret={"items": [{"key": "", "path": ""}], "defaultMode": 512}),
    "volume secret items": with_volume(
        secret={"secretName": "s", "items": [{"key": "k", "path": "/a/../b", "mode": 1000}]}
    ),
    "volume config map": with_volume(configMap={"items": [{"key": "k", "path": "..x"}]}),
    "volume claim": with_volume(persistentVolumeClaim={"claimName": ""}),
    "volume nfs": with_volume(nfs={"server": "", "path": "relative"}),
    "volume csi": with_volume(csi={"driver": ""}),
    "volume downward api": with_volume(downwardAPI={"items": [{"path": ""}, {"path": "../a"}]}),
    "volume downward api fields": with_volume(
        downwardAPI={
            "items": [
                {"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "b", "fieldRef": {"fieldPath": "spec.nodeName"}},
                {"path": "c", "resourceFieldRef": {"resource": "limits.cpu"}},
                {"path": "d", "resourceFieldRef": {"containerName": "a", "resource": "limits.cpu"}},
                {
                    "path": "e",
                    "fieldRef": {"fieldPath": "metadata.name"},
                    "resourceFieldRef": {"containerName": "a", "resource": "limits.cpu"},
                },
            ]
        }
    ),
    "volume projected": with_volume(
        projected={
            "sources": [
                {"secret": {"items": [{"key": "k", "path": "x"}]}},
                {"configMap": {"name": "c", "items": [{"key": "k", "path": "x"}]}},
                {"serviceAccountToken": {"path": "", "expirationSeconds": 1}},
                {"serviceAccountToken": {"path": "t"}},
                {"secret": {"name": "s"}, "configMap": {"name": "c"}},
                {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]
        }
    ),
    "broken volume named by a mount": {
        "containers": [container(volumeMounts=[{"name": "v", "mountPath": "/v"}])],
        "volumes": [{"name": "v", "secret": {}}],
    },
}
