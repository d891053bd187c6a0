"""A realistic Pod of 7.8 kB with managedFields, projected token, probes and env."""

from __future__ import annotations

import json
from typing import Any


def _container(name: str, image: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "args": ["--config=/etc/app/config.yaml", "--listen=:8080"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {
                "name": "POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            },
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "FEATURES", "value": "checkout-v2,recommendations,search-suggestions,dark-mode,express-delivery"},
            {"name": "UPSTREAM", "value": "http://backend.shop.svc.cluster.local:8080/api/v2"},
        ],
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "readinessProbe": {
            "failureThreshold": 3,
            "httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"},
            "periodSeconds": 10,
            "successThreshold": 1,
            "timeoutSeconds": 1,
        },
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"mountPath": "/etc/app", "name": "config", "readOnly": True},
            {
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "name": "kube-api-access-dltzj",
                "readOnly": True,
            },
        ],
    }


def _status(name: str, image: str, index: int) -> dict[str, Any]:
    return {
        "containerID": f"containerd://{index:064x}",
        "image": f"docker.io/library/{image}",
        "imageID": f"docker.io/library/{name}@sha256:e2c08decb3dc8deca28e99affa4c83054a9936a23695b01d7589572fa0b8111e",
        "lastState": {},
        "name": name,
        "ready": True,
        "restartCount": 0,
        "started": True,
        "state": {"running": {"startedAt": "2026-11-21T03:10:18Z"}},
    }


def _managed_fields() -> list[dict[str, Any]]:
    keys = [
        "f:args",
        "f:image",
        "f:imagePullPolicy",
        "f:name",
        "f:terminationMessagePath",
        "f:terminationMessagePolicy",
    ]
    nested: dict[str, Any] = {
        "f:env": {
            f'k:{{"name":"{name}"}}': {".": {}, "f:name": {}, "f:value": {}} for name in ("LOG_LEVEL", "UPSTREAM")
        },
        "f:readinessProbe": {".": {}, "f:failureThreshold": {}, "f:httpGet": {".": {}, "f:path": {}, "f:port": {}}},
        "f:resources": {
            ".": {},
            "f:limits": {".": {}, "f:cpu": {}, "f:memory": {}},
            "f:requests": {".": {}, "f:cpu": {}},
        },
    }
    containers = {f'k:{{"name":"{name}"}}': {".": {}, **nested, **{k: {} for k in keys}} for name in ("main", "proxy")}
    fields: dict[str, Any] = {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}
    types = ("ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready")
    status = {f'k:{{"type":"{type_}"}}': fields for type_ in types}
    return [
        {
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}}},
                "f:spec": {"f:containers": containers, "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:volumes": {}},
            },
            "manager": "kube-controller-manager",
            "operation": "Update",
            "time": "2026-11-21T03:10:17Z",
        },
        {
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": {"f:conditions": status, "f:containerStatuses": {}, "f:phase": {}, "f:podIP": {}}},
            "manager": "kubelet",
            "operation": "Update",
            "subresource": "status",
            "time": "2026-11-21T03:10:19Z",
        },
    ]


def pod(index: int, resource_version: int) -> dict[str, Any]:
    """Return the Pod as a JSON object; its names, addresses and ids depend on ``index``."""
    owner = index // 100
    conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"shop-{owner}-7d9c5b8f6d-{index:05x}",
            "generateName": f"shop-{owner}-7d9c5b8f6d-",
            "namespace": "shop",
            "uid": f"{index:08x}-496f-4112-b8f1-462603fad1b4",
            "resourceVersion": str(resource_version),
            "generation": 1,
            "creationTimestamp": "2026-11-21T03:10:17Z",
            "labels": {
                "app": f"shop-{owner}",
                "app.kubernetes.io/part-of": "shop",
                "pod-template-hash": "7d9c5b8f6d",
                "version": "v3",
            },
            "annotations": {
                "prometheus.io/scrape": "true",
                "kruise.io/sidecarset-hash": '{"log-agent":{"updateTimestamp":"2026-11-21T03:00:00Z","hash":'
                '"c4bf5z2x8w67v4b9d2fx5zbd6w6v4b9d2fx5zbd6w6v4b9d2","sidecarSetName":"log-agent","sidecarList":["proxy"],'
                '"controllerRevision":"log-agent-6d8f7c9b5"}}',
                "kruise.io/sidecarset-injected-list": "log-agent",
            },
            "managedFields": _managed_fields(),
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "blockOwnerDeletion": True,
                    "controller": True,
                    "kind": "ReplicaSet",
                    "name": f"shop-{owner}-7d9c5b8f6d",
                    "uid": f"{owner:08x}-a113-49fd-8b79-5edb5f2d2a4e",
                }
            ],
        },
        "spec": {
            "containers": [_container("main", "shop:1.14.2"), _container("proxy", "envoy:1.28.0")],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "nodeName": f"node-{index % 50}",
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "readinessGates": [{"conditionType": "KruisePodReady"}],
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "serviceAccount": "default",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "volumes": [
                {"name": "config", "configMap": {"name": "shop-config", "defaultMode": 420}},
                {
                    "name": "kube-api-access-dltzj",
                    "projected": {
                        "defaultMode": 420,
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
                        ],
                    },
                },
            ],
        },
        "status": {
            "conditions": [
                {"lastProbeTime": None, "lastTransitionTime": "2026-11-21T03:10:19Z", "status": "True", "type": t}
                for t in conditions
            ],
            "containerStatuses": [_status("main", "shop:1.14.2", index), _status("proxy", "envoy:1.28.0", index + 1)],
            "hostIP": "192.0.2.2",
            "hostIPs": [{"ip": "192.0.2.2"}],
            "phase": "Running",
            "podIP": f"10.{index // 65536}.{index // 256 % 256}.{index % 256}",
            "podIPs": [{"ip": f"10.{index // 65536}.{index // 256 % 256}.{index % 256}"}],
            "qosClass": "Burstable",
            "startTime": "2026-11-21T03:10:17Z",
        },
    }


def pod_json(index: int, resource_version: int) -> bytes:
    """Return the Pod as compact JSON, as an API server sends it."""
    return json.dumps(pod(index, resource_version), separators=(",", ":")).encode()
