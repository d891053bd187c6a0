"""SidecarSet for users: U-60, U-62, the injection parts of U-64 and U-67, both API versions."""

from __future__ import annotations

import json

import pytest

from tests.scenarios.world import SYSTEM_NAMESPACE, World, eventually, in_order, pod, workload

SIDECARSET = """
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: $ns, labels: {team: $ns}}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
  selector: {matchLabels: {app: nginx}}
  containers:
  - name: sidecar1
    image: busybox:1.36
    command: [sleep, 999d]
    volumeMounts: [{name: log-volume, mountPath: /var/log}]
  volumes: [{name: log-volume, emptyDir: {}}]
"""
NGINX = '[{name: nginx, image: "nginx:1.25"}]'
POD = pod(labels="app: nginx", containers=NGINX)


def deployment(replicas: int) -> str:
    return workload("Deployment", f"replicas: {replicas}", version="apps/v1", app="nginx", containers=NGINX)


def has_columns(world: World, *wanted: str) -> bool:
    cells = world.columns("sidecarset", world.namespace)
    assert cells[1 : 1 + len(wanted)] == list(wanted), cells
    return True


@pytest.mark.behaviour("SS-41", "SS-42", "SS-106", "SS-86")
def test_a_matching_pod_starts_its_sidecar_first(world: World) -> None:  # U-60
    world.apply(SIDECARSET)
    eventually(lambda: has_columns(world, "0", "0", "0"), "the set counts no Pods", 5)
    world.apply(POD)
    pod = eventually(lambda: world.pod_is_ready("web"), "Pod web is ready")
    assert in_order(pod["spec"]["containers"]) == ["sidecar1", "nginx"]
    assert {"name": "IS_INJECTED", "value": "true"} in pod["spec"]["containers"][0]["env"]
    assert "log-volume" in in_order(pod["spec"]["volumes"])
    assert world.columns("pod", "web")[1:3] == ["2/2", "Running"]
    eventually(lambda: has_columns(world, "1", "1", "1"), "the set counts the Pod", 5)
    if world.real_containers:
        env = world.kubectl("exec", "web", "-n", world.namespace, "-c", "sidecar1", "--", "env").stdout
        assert "IS_INJECTED=true" in env.splitlines()


@pytest.mark.behaviour("SS-40", "PW-36")
def test_a_new_pod_that_claims_to_be_finished_or_a_mirror_gets_its_sidecar(world: World) -> None:
    world.apply(SIDECARSET)
    eventually(lambda: has_columns(world, "0", "0", "0"), "the set counts no Pods", 5)
    world.apply(POD + "status: {phase: Succeeded}\n")
    assert in_order(world.get("pod", "web")["spec"]["containers"]) == ["sidecar1", "nginx"]
    # Kubernetes accepts a mirror Pod only if it is bound to a node.
    claimed = POD.replace("name: web", 'name: claimed, annotations: {kubernetes.io/config.mirror: "x"}')
    world.apply(claimed.replace("spec:", "spec:\n  nodeName: nowhere"))
    assert in_order(world.get("pod", "claimed")["spec"]["containers"]) == ["sidecar1", "nginx"]
    world.kubectl("delete", "pod", "claimed", "-n", world.namespace, "--force", "--grace-period=0")


@pytest.mark.behaviour("SS-40")
def test_the_template_of_the_owner_is_unchanged(world: World) -> None:  # U-60
    world.apply(SIDECARSET)
    world.apply(deployment(2))
    eventually(lambda: has_columns(world, "2", "2", "2"), "the set counts both Pods")
    template = world.get("deployment", "web")["spec"]["template"]
    assert in_order(template["spec"]["containers"]) == ["nginx"]
    assert [in_order(pod["spec"]["containers"]) for pod in world.list("pod")] == [["sidecar1", "nginx"]] * 2


@pytest.mark.behaviour("SS-44", "SS-46", "SS-47", "SS-48", "SS-49", "SS-52", "SS-53", "SS-31")
def test_volumes_env_secrets_and_annotations_are_injected(world: World) -> None:  # U-62
    world.kubectl("create", "secret", "generic", "pull", "-n", world.namespace)
    whitelist = '{"rules":[{"allowedAnnotationKeyExprs":["^oom-score$"]}]}'
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kruise-configuration"}}
    config["data"] = {"SidecarSet_PatchPodMetadata_WhiteList": whitelist}
    world.kubectl("apply", "-n", SYSTEM_NAMESPACE, "-f", "-", stdin=json.dumps(config))
    manifest = """
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: $ns, labels: {team: $ns}}
spec:
  namespaceSelector: {matchLabels: {team: $ns}}
  selector: {matchLabels: {app: nginx}}
  initContainers: [{name: prepare, image: "busybox:1.36", command: ["true"]}]
  imagePullSecrets: [{name: pull}]
  patchPodMetadata: [{annotations: {oom-score: '{"agent":1}'}, patchPolicy: MergePatchJson}]
  containers:
  - name: agent
    image: busybox:1.36
    command: [sleep, 999d]
    podInjectPolicy: AfterAppContainer
    shareVolumePolicy: {type: enabled}
    transferEnv: [{sourceContainerName: nginx, envName: COLOUR}]
"""
    eventually(lambda: world.apply(manifest, check=False).returncode == 0, "the set is accepted", 10)
    world.apply("""
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: nginx}, annotations: {oom-score: '{"nginx":2}'}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: nginx
    image: nginx:1.25
    env: [{name: COLOUR, value: green}]
    volumeMounts: [{name: data, mountPath: /data}]
""")
    pod = eventually(lambda: world.pod_is_ready("web"), "Pod web is ready")
    assert in_order(pod["spec"]["initContainers"]) == ["prepare"]
    assert in_order(pod["spec"]["containers"]) == ["nginx", "agent"]
    agent = pod["spec"]["containers"][1]
    assert agent["env"] == [{"name": "IS_INJECTED", "value": "true"}, {"name": "COLOUR", "value": "green"}]
    assert "/data" in [mount["mountPath"] for mount in agent["volumeMounts"]]
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["metadata"]["annotations"]["oom-score"] == '{"agent":1,"nginx":2}'
    if world.real_containers:
        write = ["exec", "web", "-n", world.namespace, "-c", "nginx", "--", "sh", "-c", "echo hello > /data/x"]
        world.kubectl(*write)
        read = world.kubectl("exec", "web", "-n", world.namespace, "-c", "agent", "--", "cat", "/data/x")
        assert read.stdout.strip() == "hello"


@pytest.mark.behaviour("PW-3")
@pytest.mark.alone
@pytest.mark.parametrize("namespace", ["kube-system", "kube-public"])
def test_system_namespaces_are_not_injected(world: World, namespace: str) -> None:  # U-62
    world.apply(SIDECARSET.replace("  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}\n", ""))
    name = f"web-{world.namespace}"
    world.kubectl("create", "serviceaccount", "default", "-n", namespace, check=False)
    made = world.kubectl("apply", "-n", namespace, "-f", "-", stdin=POD.replace("name: web,", f"name: {name},"))
    try:
        assert made.returncode == 0
        assert in_order(world.get("pod", name, namespace)["spec"]["containers"]) == ["nginx"]
    finally:
        world.kubectl("delete", "pod", name, "-n", namespace, "--wait=false")


@pytest.mark.behaviour("PW-3")
def test_namespace_labels_cannot_prevent_injection(world: World) -> None:
    world.kubectl("label", "namespace", world.namespace, "control-plane=openkruise")
    world.apply(SIDECARSET)
    world.apply(POD)
    assert in_order(world.get("pod", "web")["spec"]["containers"]) == ["sidecar1", "nginx"]


@pytest.mark.behaviour("SS-68", "SS-69", "SS-73", "SS-75")
def test_new_pods_get_the_named_revision(world: World) -> None:  # U-67
    selector = f"kruise.io/sidecarset-name={world.namespace}"

    def revisions(count: int) -> list[str] | None:
        found = world.list("controllerrevisions", "-l", selector, namespace=SYSTEM_NAMESPACE)
        found.sort(key=lambda revision: revision["revision"])
        return [revision["metadata"]["name"] for revision in found] if len(found) == count else None

    world.apply(SIDECARSET)
    (first,) = eventually(lambda: revisions(1), "the first revision is in the manager's namespace", 10)
    world.apply(SIDECARSET.replace("busybox:1.36", "busybox:1.35"))
    _, second = eventually(lambda: revisions(2), "the second revision is recorded", 10)
    eventually(
        lambda: world.get("sidecarset", world.namespace)["status"].get("latestRevision") == second,
        "the status names the second revision",
        10,
    )
    # A rollout would update the new Pod to the latest revision before the test reads it.
    changed = SIDECARSET.replace("busybox:1.36", "busybox:1.35") + "  updateStrategy: {type: NotUpdate}\n"
    world.apply(changed + f"  injectionStrategy: {{revision: {{revisionName: {first}}}}}\n")

    def injected_image() -> bool:
        world.kubectl(
            "delete", "pod", "web", "-n", world.namespace, "--ignore-not-found", "--force", "--grace-period=0"
        )
        world.apply(POD)
        return bool(world.get("pod", "web")["spec"]["containers"][0]["image"] == "busybox:1.36")

    eventually(injected_image, "a new Pod gets the older revision", 10)
    annotation = world.get("pod", "web")["metadata"]["annotations"]["kruise.io/sidecarset-hash"]
    assert f'"controllerRevision":"{first}"' in annotation


@pytest.mark.behaviour("SS-1", "SS-2", "SS-3", "SS-4")
def test_a_set_written_in_one_version_can_be_read_in_the_other(world: World) -> None:
    world.apply("""
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: $ns, labels: {team: $ns, apps.kruise.io/sidecarset-custom-version: blue}}
spec:
  namespace: $ns
  selector: {matchLabels: {app: nginx}}
  containers: [{name: sidecar1, image: "busybox:1.36", command: [sleep, 999d]}]
""")
    beta = world.get("sidecarsets.v1beta1.apps.kruise.io", world.namespace)
    assert beta["spec"]["customVersion"] == "blue"
    assert beta["spec"]["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}
    alpha = world.get("sidecarsets.v1alpha1.apps.kruise.io", world.namespace)
    assert alpha["spec"]["namespace"] == world.namespace
    assert alpha["metadata"]["labels"]["apps.kruise.io/sidecarset-custom-version"] == "blue"
    for key in ("kruise.io/sidecarset-hash", "kruise.io/sidecarset-hash-without-image"):
        assert alpha["metadata"]["annotations"][key] == beta["metadata"]["annotations"][key]
    world.apply(POD)
    assert in_order(world.get("pod", "web")["spec"]["containers"]) == ["sidecar1", "nginx"]
