"""Webhooks of service meshes before and after ours: their injections remain, and reinvocation changes nothing.

The injectors imitate those of Istio and Linkerd. Their names determine the order of calls.
"""

from __future__ import annotations

import base64
import copy
import json
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from tests.conformance.hooks import certificates
from tests.scenarios.world import World, eventually, in_order

pytestmark = pytest.mark.peers

Pod = dict[str, Any]
Injector = Callable[[Pod], None]
BARRIER = "KRUISE_CONTAINER_BARRIER"
ISTIO, LINKERD = "istio-sidecar-injector", "linkerd-proxy-injector-webhook-config"
SIDECAR_SET = """
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: $ns, labels: {team: $ns}}
spec:
  selector: {matchLabels: {app: web}}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
  initContainers: [{name: setup, image: "busybox:1.36", command: ["true"]}]
  containers:
  - name: agent
    image: nginx:1.25
    podInjectPolicy: BeforeAppContainer
    volumeMounts: [{name: shared, mountPath: /shared}]
  - name: shipper
    image: nginx:1.25
    podInjectPolicy: AfterAppContainer
    shareVolumePolicy: {type: enabled}
  volumes: [{name: shared, emptyDir: {}}]
"""
CLONE_SET = """
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata: {name: %s}
spec:
  replicas: 1
  selector: {matchLabels: {app: web, of: %s}}
  updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible}}
  template:
    metadata:
      labels: {app: web, of: %s}
      annotations: {%s}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: app, image: "nginx:1.25"}]
"""
ORDERED = "apps.kruise.io/container-launch-priority: Ordered"
PROXY_FIRST = """apps.kruise.io/container-launch-priority: '{"istio-proxy": 1}'"""


# --- Injectors


def proxy(name: str, **more: Any) -> dict[str, Any]:
    mounts = [{"name": f"{name}-data", "mountPath": "/var/lib/proxy"}]
    return {"name": name, "image": "nginx:1.25", "volumeMounts": mounts, **more}


def istio(pod: Pod) -> None:
    """Add istio-init, and istio-proxy after the application."""
    _inject(pod, "istio")
    pod["spec"]["containers"].append(proxy("istio-proxy"))


def istio_native(pod: Pod) -> None:
    """Add istio-init, and istio-proxy as a native sidecar."""
    _inject(pod, "istio")
    pod["spec"]["initContainers"].insert(1, proxy("istio-proxy", restartPolicy="Always"))


def linkerd(pod: Pod) -> None:
    """Add linkerd-init, and linkerd-proxy first, with a hook that delays the other containers until it answers."""
    _inject(pod, "linkerd")
    hook = {"postStart": {"exec": {"command": ["/usr/lib/linkerd/linkerd-await", "--timeout=2m"]}}}
    pod["spec"]["containers"].insert(0, proxy("linkerd-proxy", lifecycle=hook))


def _inject(pod: Pod, mesh: str) -> None:
    init = {"name": f"{mesh}-init", "image": "busybox:1.36", "command": ["true"]}
    pod["spec"].setdefault("initContainers", []).insert(0, init)
    pod["spec"].setdefault("volumes", []).append({"name": f"{mesh}-proxy-data", "emptyDir": {"medium": "Memory"}})
    pod["metadata"].setdefault("annotations", {})[f"{mesh}/injected"] = "yes"


class Hook:
    """A mutating webhook for the Pods of one namespace, and the patches it sent."""

    def __init__(self, inject: Injector) -> None:
        self.patches: list[Any] = []
        self._inject = inject

    def review(self, review: dict[str, Any]) -> dict[str, Any]:
        pod = review["request"]["object"]
        changed = copy.deepcopy(pod)
        if not any(key.endswith("/injected") and "." not in key for key in pod["metadata"].get("annotations") or ()):
            self._inject(changed)
        operations = jsonpatch.make_patch(pod, changed).patch
        self.patches.append(operations)
        answer: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": True}
        if operations:
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}
        return {**review, "response": answer}


@contextmanager
def registered(world: World, name: str, inject: Injector) -> Iterator[Hook]:
    """Serve and register the injector for the namespace; ``name`` determines when it is called."""
    hook = Hook(inject)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(hook.review(asked)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:
        for file, pem in (("cert", certificates().cert), ("key", certificates().key)):
            Path(folder, file).write_bytes(pem)
        context.load_cert_chain(f"{folder}/cert", f"{folder}/key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    bundle = base64.b64encode(certificates().ca_cert).decode()
    webhook = {
        "name": "pods.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{server.server_port}/", "caBundle": bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    inside = {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{**webhook, "reinvocationPolicy": "IfNeeded", "namespaceSelector": inside}],
    }
    world.kubectl("apply", "-f", "-", stdin=json.dumps(configuration))
    try:
        yield hook
    finally:
        world.kubectl("delete", "mutatingwebhookconfiguration", name)
        server.shutdown()
        server.server_close()


# --- Tests


def pod_of(world: World, name: str) -> Pod | None:
    """Return the ready Pod of a CloneSet."""
    found = [pod for pod in world.list("pods", "-l", f"of={name}") if "deletionTimestamp" not in pod["metadata"]]
    return world.pod_is_ready(found[0]["metadata"]["name"]) if len(found) == 1 else None


def created(world: World, name: str, annotation: str = "") -> Pod:
    world.apply(CLONE_SET % (name, name, name, annotation))
    return eventually(lambda: pod_of(world, name), f"the Pod of {name} is ready", 40)


def test_a_second_invocation_changes_nothing(world: World) -> None:
    world.apply(SIDECAR_SET)
    with (
        registered(world, f"a-{world.namespace}", istio) as before,
        registered(world, f"y-{world.namespace}", lambda pod: None) as after,
    ):
        pod = created(world, "web")
    # Our webhook changed the Pod after the first call, so the API server calls again.
    assert [bool(patch) for patch in before.patches] == [True, False]
    assert not any(after.patches)
    assert in_order(pod["spec"]["containers"]) == ["agent", "app", "istio-proxy", "shipper"]


@pytest.mark.parametrize(
    ("name", "inject", "order", "init", "containers", "barriers"),
    [
        pytest.param(
            ISTIO,
            istio,
            ORDERED,
            ["istio-init", "setup"],
            ["agent", "app", "istio-proxy", "shipper"],
            {"agent": "p_0", "app": "p_-1", "istio-proxy": "p_-2", "shipper": "p_-3"},
            id="istio",
        ),
        pytest.param(
            ISTIO,
            istio,
            PROXY_FIRST,
            ["istio-init", "setup"],
            ["agent", "app", "istio-proxy", "shipper"],
            {"agent": "p_0", "app": "p_0", "istio-proxy": "p_1", "shipper": "p_0"},
            id="istio-first",
        ),
        pytest.param(
            ISTIO,
            istio_native,
            ORDERED,
            ["istio-init", "istio-proxy", "setup"],
            ["agent", "app", "shipper"],
            {"agent": "p_0", "app": "p_-1", "shipper": "p_-2"},
            id="istio-native",
        ),
        pytest.param(
            LINKERD,
            linkerd,
            ORDERED,
            ["linkerd-init", "setup"],
            ["linkerd-proxy", "agent", "app", "shipper"],
            {"agent": "p_0", "app": "p_-1", "shipper": "p_-2"},
            id="linkerd",
        ),
    ],
)
def test_a_mesh_and_our_sidecars_share_an_ordered_pod(
    world: World,
    name: str,
    inject: Injector,
    order: str,
    init: list[str],
    containers: list[str],
    barriers: dict[str, str],
) -> None:
    world.apply(SIDECAR_SET)
    with registered(world, name, inject):
        pod = created(world, "web", order)
    assert in_order(pod["spec"]["initContainers"]) == init
    assert in_order(pod["spec"]["containers"]) == containers
    keys = {
        one["name"]: env["valueFrom"]["configMapKeyRef"]["key"]
        for one in pod["spec"]["containers"]
        for env in one.get("env", [])
        if env["name"] == BARRIER
    }
    assert keys == barriers
    # Both the sidecar and the application are updated in place next to the mesh's proxy.
    for kind, target in (("sidecarset", world.namespace), ("cloneset", "web")):
        found = world.get(kind, target)
        part = found["spec"] if kind == "sidecarset" else found["spec"]["template"]["spec"]
        part["containers"][-1]["image"] = "nginx:1.26"
        world.kubectl("apply", "-n", world.namespace, "-f", "-", stdin=json.dumps(found))

    def updated() -> bool:
        now = pod_of(world, "web")
        images = {one["name"]: one["image"] for one in now["spec"]["containers"]} if now else {}
        return (
            bool(now)
            and now["metadata"]["uid"] == pod["metadata"]["uid"]
            and (images["app"] == images["shipper"] == "nginx:1.26")
        )

    eventually(updated, "both are updated in place", 40)
