"""Deletion protection for users: U-90 for the native kinds, and what an operator sees."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cluster.controlplane import ControlPlane, wait_until_established
from tests.scenarios.world import World, eventually, manager, pod
from tests.scenarios.world import workload as workload_of

#: Versions where the API server counts calls of webhooks, and a namespace reports why it is not deleted.
REAL_SERVER = [
    pytest.param("control_plane_with_manager", marks=pytest.mark.controlplane, id="simulated-nodes"),
    pytest.param("cluster_with_manager", marks=pytest.mark.cluster, id="real-containers"),
]
LABEL = "policy.kruise.io/delete-protection"
FORBIDDEN = f"denied the request: forbidden by ResourcesProtectionDeletion for {LABEL}="
SERVICE = """
kind: Service
apiVersion: v1
metadata: {{name: {name}, labels: {{{label}}}}}
spec: {{ports: [{{port: 80}}]}}
"""
INGRESS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: web, labels: {{{label}}}}}
spec: {{defaultBackend: {{service: {{name: web, port: {{number: 80}}}}}}}}
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: widgets.{group}, labels: {{{label}}}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{plural: widgets, singular: widget, kind: Widget, listKind: Widgets}}
  versions:
  - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}
"""


SIDECARSET = """
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: log}
spec: {selector: {matchLabels: {app: web}}, containers: [{name: log, image: "log:1"}]}
"""


def labeled(value: str) -> str:
    return f"{LABEL}: {value}"


def workload(kind: str, value: str, replicas: int = 0) -> str:
    service = ["serviceName: web"] if kind == "StatefulSet" else []
    return workload_of(kind, f"replicas: {replicas}", *service, labels=labeled(value), version="apps/v1")


def delete(world: World, kind: str, name: str = "web", *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl delete without waiting or checking."""
    return world.kubectl("delete", kind, name, "-n", world.namespace, "--wait=false", *arguments, check=False)


def refusal(deleted: subprocess.CompletedProcess[str], webhook: str, text: str) -> None:
    assert deleted.returncode != 0, deleted.stdout
    assert f'admission webhook "{webhook}" {FORBIDDEN}{text}\n' in deleted.stderr


def unlabel(world: World, kind: str, name: str = "web") -> None:
    world.kubectl("label", kind, name, "-n", world.namespace, f"{LABEL}-")


WORKLOADS = [
    ("Deployment", "vbuiltindeployment.kb.io"),
    ("ReplicaSet", "vbuiltinreplicaset.kb.io"),
    ("StatefulSet", "vbuiltinstatefulset.kb.io"),
]


@pytest.mark.parametrize(
    ("kind", "webhook", "manifest"),
    [
        *((kind, webhook, workload(kind, "Always")) for kind, webhook in WORKLOADS),
        ("Service", "vservice.kb.io", SERVICE.format(name="web", label=labeled("Always"))),
        ("Ingress", "vingress.kb.io", INGRESS.format(label=labeled("Always"))),
    ],
    ids=lambda value: value if re.fullmatch("[A-Z][A-Za-z]+", value) else "",
)
@pytest.mark.behaviour("DP-8", "DP-9", "DP-10", "DP-11")
def test_always_protects_until_the_label_is_removed(
    world: World, kind: str, webhook: str, manifest: str
) -> None:  # U-90
    world.apply(manifest)
    refusal(delete(world, kind), webhook, "Always")
    refusal(delete(world, kind, "web", "--dry-run=server"), webhook, "Always")
    refusal(delete(world, kind, "web", "--force", "--grace-period=0", "--cascade=orphan"), webhook, "Always")
    unlabel(world, kind)
    assert delete(world, kind).returncode == 0


@pytest.mark.parametrize(("kind", "webhook"), WORKLOADS, ids=[kind for kind, _ in WORKLOADS])
@pytest.mark.behaviour("DP-20")
def test_cascading_protects_a_workload_until_it_has_no_replicas(world: World, kind: str, webhook: str) -> None:
    world.apply(workload(kind, "Cascading", 2))
    refusal(delete(world, kind), webhook, "Cascading and replicas 2>0")
    world.kubectl("scale", kind, "web", "-n", world.namespace, "--replicas=0")
    # Pods may still be terminating: the desired replicas count.
    assert delete(world, kind).returncode == 0


@pytest.mark.behaviour("DP-22", "DP-23", "DP-25", "DP-8")
def test_a_namespace_can_be_deleted_without_pods_and_volumes(world: World) -> None:  # U-90
    namespace = f"{world.namespace}-x"

    def remove() -> subprocess.CompletedProcess[str]:
        return world.kubectl("delete", "namespace", namespace, "--wait=false", check=False)

    def apply(manifest: str) -> None:
        world.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)

    world.kubectl("create", "namespace", namespace)
    world.kubectl("label", "namespace", namespace, f"{LABEL}=Always")
    refusal(remove(), "vnamespace.kb.io", "Always")
    world.kubectl("label", "namespace", namespace, f"{LABEL}=Cascading", "--overwrite")
    # A claim binds a volume that was created for it.
    volume = f"v-{namespace}"
    spec = {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    spec |= {"hostPath": {"path": "/tmp"}, "claimRef": {"namespace": namespace, "name": "data"}}
    apply(json.dumps({"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": volume}, "spec": spec}))
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Mi"}}}
    claim["volumeName"] = volume
    apply(
        json.dumps({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "data"}, "spec": claim})
    )
    eventually(
        lambda: world.get("pvc", "data", namespace).get("status", {}).get("phase") == "Bound", "the claim is bound"
    )
    apply(pod())
    refusal(remove(), "vnamespace.kb.io", "Cascading and active pods >0")
    world.kubectl("delete", "pod", "web", "-n", namespace)
    refusal(remove(), "vnamespace.kb.io", 'Cascading and "Bound" status pvc >0')
    world.kubectl("delete", "pvc", "data", "-n", namespace)
    apply(SERVICE.format(name="web", label=""))  # no obstacle
    assert remove().returncode == 0
    world.kubectl("delete", "pv", volume, "--wait=false")


@pytest.mark.behaviour("DP-8", "DP-26")
def test_a_definition_is_protected(world: World) -> None:
    group = f"{world.namespace}.example.com"
    name = f"widgets.{group}"
    world.kubectl("apply", "-f", "-", stdin=DEFINITION.format(group=group, label=labeled("Always")))
    refusal(world.kubectl("delete", "crd", name, check=False), "vcustomresourcedefinition.kb.io", "Always")
    world.kubectl("label", "crd", name, f"{LABEL}=Cascading", "--overwrite")
    refused = world.kubectl("delete", "crd", name, check=False)
    assert "denied the request: feature-gate DeletionProtectionForCRDCascadingGate is not enabled" in refused.stderr
    world.kubectl("label", "crd", name, f"{LABEL}-")
    world.kubectl("delete", "crd", name, "--wait=false")


@pytest.mark.behaviour("DP-2", "DP-3")
def test_only_protected_objects_of_a_collection_remain(world: World) -> None:
    for name, label in (("a", ""), ("b", labeled("Always")), ("c", "")):
        world.apply(SERVICE.format(name=name, label=label))
    raw = f"/api/v1/namespaces/{world.namespace}/services"
    deleted = world.kubectl("delete", "--raw", raw, check=False)
    refusal(deleted, "vservice.kb.io", "Always")
    left = {service["metadata"]["name"] for service in world.list("service")}
    assert "b" in left
    unlabel(world, "service", "b")
    world.kubectl("delete", "--raw", raw)
    assert world.list("service") == []


def calls(world: World, webhook: str) -> int:
    """Return how often the API server called a webhook, by its own count."""
    metrics = world.kubectl("get", "--raw", "/metrics").stdout
    found = re.findall(
        rf'apiserver_admission_webhook_admission_duration_seconds_count{{name="{re.escape(webhook)}".*}} (\d+)', metrics
    )
    return sum(map(int, found))


@pytest.mark.parametrize("world", REAL_SERVER, indirect=True)
@pytest.mark.behaviour("DP-30", "DP-54")
@pytest.mark.alone
def test_an_object_without_the_label_is_deleted_without_a_call(world: World) -> None:
    webhooks = ("vservice.kb.io", "vbuiltindeployment.kb.io", "vnamespace.kb.io", "vdeletionprotectionlabel.kb.io")
    before = {webhook: calls(world, webhook) for webhook in webhooks}
    namespace = f"{world.namespace}-free"
    world.kubectl("create", "namespace", namespace)
    world.apply(SERVICE.format(name="web", label=""))
    world.apply(workload("Deployment", "Always").replace(labeled("Always"), ""))
    for kind in ("service", "deployment"):
        assert delete(world, kind).returncode == 0
    world.kubectl("delete", "namespace", namespace, "--wait=false")
    assert {webhook: calls(world, webhook) for webhook in webhooks} == before
    world.apply(SERVICE.format(name="web", label=labeled("Always")))
    refusal(delete(world, "service"), "vservice.kb.io", "Always")
    assert calls(world, "vservice.kb.io") == before["vservice.kb.io"] + 1
    assert calls(world, "vdeletionprotectionlabel.kb.io") == before["vdeletionprotectionlabel.kb.io"]
    unlabel(world, "service")


@pytest.mark.behaviour("DP-54", "DP-29", "DP-6")
def test_an_ineffective_label_gets_a_warning(world: World) -> None:
    made = world.apply(SERVICE.format(name="web", label=labeled("Cascading")))
    assert "Warning: label policy.kruise.io/delete-protection=Cascading protects nothing here" in made.stderr
    again = world.kubectl("annotate", "service", "web", "-n", world.namespace, "a=b")
    assert "Warning" not in again.stderr
    changed = world.kubectl("label", "service", "web", "-n", world.namespace, f"{LABEL}=on", "--overwrite")
    assert "Warning: label policy.kruise.io/delete-protection=on protects nothing here" in changed.stderr
    assert delete(world, "service").returncode == 0


@pytest.mark.parametrize("world", REAL_SERVER, indirect=True)
@pytest.mark.behaviour("DP-43", "DP-11")
def test_a_protected_object_blocks_the_deletion_of_its_namespace(world: World) -> None:
    namespace = f"{world.namespace}-held"
    world.kubectl("create", "namespace", namespace)
    world.kubectl("apply", "-n", namespace, "-f", "-", stdin=SERVICE.format(name="web", label=labeled("Always")))
    world.kubectl("delete", "namespace", namespace, "--wait=false")

    def held() -> bool:
        conditions = {c["type"]: c for c in world.get("namespace", namespace)["status"].get("conditions", [])}
        failure = conditions.get("NamespaceDeletionContentFailure", {})
        return (failure.get("status"), failure.get("reason")) == ("True", "ContentDeletionFailed") and (
            f"forbidden by ResourcesProtectionDeletion for {LABEL}=Always" in failure["message"]
        )

    eventually(held, "the namespace reports why it is not deleted")
    world.kubectl("label", "service", "web", "-n", namespace, f"{LABEL}-")
    world.kubectl("wait", "--for=delete", f"namespace/{namespace}", "--timeout=60s")


# ---- with a manager of the test's own: rights, gates, and its absence


@pytest.mark.controlplane
@pytest.mark.behaviour("DP-27", "DP-28", "DP-42", "DP-51", "DP-52")
def test_a_definition_can_be_deleted_if_its_objects_are_visibly_gone(tmp_path: Path) -> None:
    with ControlPlane() as own, manager(own, tmp_path, "--feature-gates=DeletionProtectionForCRDCascadingGate=true"):
        name = "widgets.shop.example.com"
        own.kubectl("apply", "-f", "-", stdin=DEFINITION.format(group="shop.example.com", label=labeled("Cascading")))
        wait_until_established(own.kubectl, f"crd/{name}")
        widget = "{apiVersion: shop.example.com/v1, kind: Widget, metadata: {name: a, namespace: default}}"
        own.kubectl("apply", "-f", "-", stdin=widget)

        refused = own.kubectl("delete", "crd", name, check=False)
        assert (
            "failed to list CRs of shop.example.com/v1, Kind=Widget: widgets.shop.example.com is forbidden"
            in refused.stderr
        )
        assert "grant the manager permission to list widgets.shop.example.com" in refused.stderr

        own.kubectl("create", "clusterrole", "see-widgets", "--verb=list", "--resource=widgets.shop.example.com")
        account = "--serviceaccount=kruise-system:kruise-manager"
        own.kubectl("create", "clusterrolebinding", "see-widgets", "--clusterrole=see-widgets", account)
        text = f"{FORBIDDEN}Cascading and active CRs >0"
        eventually(lambda: text in own.kubectl("delete", "crd", name, check=False).stderr, "the manager may list", 10)
        own.kubectl("delete", "widget", "a", "-n", "default")
        own.kubectl("delete", "crd", name)


@pytest.mark.controlplane
@pytest.mark.behaviour("DP-30", "DP-31", "MGR-102")
def test_without_a_manager_only_labeled_objects_are_protected(tmp_path: Path) -> None:
    with ControlPlane() as control_plane:
        with manager(control_plane, tmp_path):
            control_plane.kubectl("run", "before", "--image=nginx:1.25")
            control_plane.kubectl("apply", "-f", "-", stdin=SIDECARSET)
        refused = control_plane.kubectl("run", "meanwhile", "--image=nginx:1.25", check=False)
        assert 'failed calling webhook "mpod.kb.io"' in refused.stderr
        refused = control_plane.kubectl("annotate", "sidecarset", "log", "a=b", check=False)
        assert 'failed calling webhook "msidecarset.kb.io"' in refused.stderr
        control_plane.kubectl("get", "sidecarset", "log")
        older = control_plane.kubectl("get", "sidecarsets.v1alpha1.apps.kruise.io", "log", check=False)
        assert "conversion webhook for apps.kruise.io/v1beta1" in older.stderr
        control_plane.kubectl("get", "pod", "before")
        for name, label in (("free", ""), ("held", labeled("Always"))):
            service = SERVICE.format(name=name, label=label)
            control_plane.kubectl("apply", "-n", "default", "-f", "-", stdin=service)
        control_plane.kubectl("delete", "service", "free", "-n", "default")
        refused = control_plane.kubectl("delete", "service", "held", "-n", "default", check=False)
        assert 'failed calling webhook "vservice.kb.io"' in refused.stderr
        control_plane.kubectl("label", "service", "held", "-n", "default", f"{LABEL}-")
        control_plane.kubectl("delete", "service", "held", "-n", "default")
