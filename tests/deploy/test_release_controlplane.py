"""The chart on a real API server without nodes: valid, idempotent, careful with existing objects, few permissions."""

import base64
import ssl
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest

from app.api import names
from app.api.kind import KindDefinition
from app.features.cloneset.kind import CLONE_SET
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.kube.admission import PolicyRule
from app.manager.features import kinds
from app.manager.rbac import default_rules, rules_of_gates, webhook_rules
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane, free_port, wait_for_service_account
from tests.cluster.recording import SERVICE_ACCOUNT
from tests.deploy.release import NAME, NAMESPACE, Release
from tests.scenarios.world import eventually, running

pytestmark = pytest.mark.controlplane

DEFINITION = "sidecarsets.apps.kruise.io"
#: Whether the API server has ValidatingAdmissionPolicies.
HAS_POLICIES = binaries.minor_version() >= 30
POLICIES = f"--set=deletionProtection.admissionPolicies={str(HAS_POLICIES).lower()}"


@pytest.fixture(scope="module")
def release(empty: ControlPlane) -> Release:
    """Install the release once. No manager runs, because there are no nodes."""
    made = Release(empty.kubectl, empty.kubeconfig)
    made.install(POLICIES)
    return made


def test_every_object_is_accepted_and_stored(release: Release) -> None:
    objects = release.objects()
    assert ("Deployment", "kruise-controller-manager") in objects
    assert ("CustomResourceDefinition", DEFINITION) in objects
    for policy in ("deletion-protection-always.kruise.io", "kruise-daemon-own-node"):
        assert (("ValidatingAdmissionPolicy", policy) in objects) is HAS_POLICIES


def test_without_a_manager_no_webhook_is_registered(release: Release) -> None:
    """If the image cannot be pulled, Pods can still be created in the cluster."""
    for kind in ("mutating", "validating"):
        found = release.get(f"{kind}webhookconfiguration", f"kruise-{kind}-webhook-configuration")
        assert found.get("webhooks", []) == []
    release.kubectl("create", "namespace", "shop")
    wait_for_service_account(release.kubectl, "shop")
    release.kubectl("run", "-n", "shop", "web", "--image=nginx")


@pytest.mark.behaviour("MGR-85")
def test_an_upgrade_with_the_same_values_keeps_changes_of_others(empty: ControlPlane, release: Release) -> None:
    secret = '{"data": {"tls.crt": "eA=="}}'
    release.kubectl("patch", "secret", "-n", NAMESPACE, "kruise-webhook-certs", "--type=merge", "-p", secret)
    bundle = '{"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "%s"}}}}}'
    encoded = base64.b64encode(empty.ca_file.read_bytes()).decode()
    release.kubectl("patch", "crd", DEFINITION, "--type=merge", "-p", bundle % encoded)
    before = release.versions()
    release.upgrade(POLICIES)
    assert release.versions() == before
    assert release.get("secret", "-n", NAMESPACE, "kruise-webhook-certs")["data"] == {"tls.crt": "eA=="}


@pytest.mark.parametrize(
    ("verb", "resource", "namespace"),
    [
        ("get", "secrets", "kube-system"),
        ("list", "secrets", "kube-system"),
        ("watch", "secrets", "kube-system"),
        ("list", "secrets", ""),
        ("get", "secrets/other", NAMESPACE),
        ("list", "secrets", NAMESPACE),
        ("get", "secrets", "shop"),
        ("list", "secrets", "shop"),
        ("create", "secrets", "shop"),
        ("delete", "secrets", "shop"),
        ("update", "secrets", "kruise-daemon-config"),
        ("update", "nodes", ""),
        ("patch", "nodes", ""),
        ("delete", "nodes", ""),
        ("create", "clusterroles.rbac.authorization.k8s.io", ""),
        ("update", "clusterroles.rbac.authorization.k8s.io", ""),
        ("bind", "clusterroles.rbac.authorization.k8s.io", ""),
        ("escalate", "clusterroles.rbac.authorization.k8s.io", ""),
        ("create", "roles.rbac.authorization.k8s.io", NAMESPACE),
        ("create", "rolebindings.rbac.authorization.k8s.io", "kube-system"),
        ("impersonate", "users", ""),
        ("create", "serviceaccounts/token", NAMESPACE),
        ("create", "pods --subresource=exec", "shop"),
        ("create", "pods --subresource=eviction", "shop"),
        ("create", "daemonsets.apps", "shop"),
        ("update", "mutatingwebhookconfigurations.admissionregistration.k8s.io/others", ""),
        ("delete", "mutatingwebhookconfigurations.admissionregistration.k8s.io", ""),
        ("patch", "customresourcedefinitions.apiextensions.k8s.io/others.example.com", ""),
        ("list", "*", ""),
        ("*", "pods", ""),
        ("*", "*", ""),
        ("*", "*.*", NAMESPACE),
    ],
)
def test_the_manager_is_denied(release: Release, verb: str, resource: str, namespace: str) -> None:
    assert not release.may(verb, resource, namespace)


def test_the_manager_has_all_declared_rights(empty: ControlPlane, release: Release) -> None:
    for attributes in _asked((*default_rules(), *rules_of_gates()["ImagePullJobGate"])):
        assert may(empty, SERVICE_ACCOUNT, attributes), attributes


def _asked(rules: Iterable[PolicyRule]) -> Iterator[dict[str, str]]:
    for rule in rules:
        for verb, group, resource, name in product(rule.verbs, rule.groups, rule.resources, rule.names or ("",)):
            plural, _, subresource = resource.partition("/")
            namespace = NAMESPACE if rule.own_namespace else rule.namespace
            where = {"namespace": namespace} if namespace else {}
            yield {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "name": name, **where}


@pytest.mark.behaviour("MGR-160")
@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_aggregated_roles_grant_the_declared_rights(empty: ControlPlane, release: Release, role: str) -> None:
    """The role is bound cluster-wide, the widest grant that a user can have."""
    user = f"{role}er"
    release.kubectl("create", "clusterrolebinding", user, f"--clusterrole={role}", f"--user={user}")
    writing = ("create", "update", "patch", "delete", "deletecollection")

    def granted(kind: KindDefinition, verb: str, subresource: str = "") -> bool:
        where = {"namespace": "shop"} if kind.namespaced else {}
        asked = {"group": kind.group, "resource": kind.plural, "subresource": subresource, "verb": verb, **where}
        return may(empty, user, asked)

    eventually(lambda: granted(CLONE_SET, "get"), "the role is aggregated", 30)
    for kind in kinds():
        readable = kind is not RESOURCE_DISTRIBUTION
        writable = role != "view" and kind.namespaced
        assert [granted(kind, verb) for verb in ("get", "list", "watch")] == [readable] * 3, kind.plural
        assert [granted(kind, verb) for verb in writing] == [writable] * len(writing), kind.plural
        assert not granted(kind, "patch", "status")
        assert granted(kind, "patch", "scale") is (writable and kind.scalable)


@pytest.mark.behaviour("KD-96")
def test_an_agent_can_write_only_its_node_and_one_pod_annotation(empty: ControlPlane, release: Release) -> None:
    uids = {}
    for node in ("own", "other"):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
        uids[node] = empty.request("POST", "/api/v1/nodes", body)[1]["metadata"]["uid"]
        image = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": node}, "spec": {}}
        assert empty.request("POST", "/apis/apps.kruise.io/v1beta1/nodeimages", image)[0] == 201
    for node in ("own", "other"):
        metadata = {
            "name": node,
            "namespace": NAMESPACE,
            "labels": {"app": "web"},
            "annotations": {"a": "b"},
            "finalizers": ["example.com/hold"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uids[node]}],
        }
        container = {"name": "main", "image": "busybox"}
        spec = {"nodeName": node, "serviceAccountName": "kruise-daemon", "containers": [container]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        assert empty.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body)[0] == 201
    bound = ("--bound-object-kind=Pod", "--bound-object-name=own")
    token = release.kubectl("create", "token", "kruise-daemon", "-n", NAMESPACE, *bound).stdout.strip()

    def patch(pod: str, change: Mapping[str, Any]) -> tuple[int, str]:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/status"
        code, answer = empty.request("PATCH", path, change, token=token)
        return code, answer.get("message", "")

    def images(node: str) -> int:
        status = {"status": {"desired": 0, "waiting": next(counter)}}
        return empty.request("PATCH", f"/apis/apps.kruise.io/v1beta1/nodeimages/{node}/status", status, token=token)[0]

    counter = count()
    report = {"metadata": {"annotations": {names.RUNTIME_CONTAINERS_META: "{}"}}}
    eventually(lambda: images("other") == 403, "the policy is in force", 30)
    assert images("own") == 200
    assert patch("own", report)[0] == 200
    assert patch("own", {"metadata": {"annotations": {names.RUNTIME_CONTAINERS_META: '{"containers": []}'}}})[0] == 200
    code, message = patch("other", report)
    assert code == 403
    assert "the agent of node own may not write to objects of node other" in message
    for field, change in (
        ("labels", {"app": "stolen"}),
        ("labels", {"more": "x"}),
        ("labels", None),
        ("annotations", {"a": "c"}),
        ("annotations", {"more": "x"}),
        ("annotations", {"a": None}),
        ("finalizers", []),
        ("finalizers", ["example.com/hold", "example.com/more"]),
    ):
        code, message = patch("own", {"metadata": {field: change}})
        assert (code, f"metadata.{field} may not be changed by the node agent" in message) == (403, True), message
    code, message = patch("own", {"status": {"phase": "Failed"}})
    assert (code, "status of a Pod may not be changed by the node agent" in message) == (403, True)
    # The API server ignores owner references in status writes.
    patch("own", {"metadata": {"ownerReferences": []}})
    kept = release.get("pod", "-n", NAMESPACE, "own")
    assert kept["metadata"]["labels"] == {"app": "web"}
    assert kept["metadata"]["annotations"]["a"] == "b"
    assert kept["metadata"]["finalizers"] == ["example.com/hold"]
    assert len(kept["metadata"]["ownerReferences"]) == 1
    assert kept["status"]["phase"] == "Pending"


def may(control_plane: ControlPlane, user: str, attributes: Mapping[str, str]) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": dict(attributes)},
    }
    status, answer = control_plane.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert status == 201
    return bool(answer["status"]["allowed"])


def test_changing_a_value_does_not_remove_definitions(release: Release) -> None:
    refused = release.upgrade("--set=crds.managed=false", check=False)
    assert refused.returncode != 0
    definitions = [kind.crd_name for kind in kinds()]
    assert any(
        f"would delete CustomResourceDefinition {name} and all its objects" in refused.stderr for name in definitions
    )
    # Apply the fix that the message names.
    for name in definitions:
        release.kubectl("annotate", "crd", name, "meta.helm.sh/release-name-", "helm.sh/resource-policy=keep")
    release.upgrade("--set=crds.managed=false")
    for name in definitions:
        assert "deletionTimestamp" not in release.get("crd", name)["metadata"]
    release.helm("uninstall", NAME, "--no-hooks")
    for name in definitions:
        assert "deletionTimestamp" not in release.get("crd", name)["metadata"]
        release.kubectl("delete", "crd", name)


def test_an_existing_namespace_is_used_and_kept(empty: ControlPlane) -> None:
    """Use `helm install -n NAMESPACE --create-namespace` after the previous release was uninstalled."""
    release = Release(empty.kubectl, empty.kubeconfig)
    other, copies = "kruise-elsewhere", "kruise-daemon-config"
    release.kubectl("wait", "--for=delete", f"namespace/{copies}", "--timeout=60s")
    release.kubectl("create", "namespace", copies)
    where = ["-n", other, f"--set=installation.namespace={other}"]
    release.install("--create-namespace", *where)
    release.upgrade(*where)
    for name in (other, copies):
        kept = release.get("namespace", name)["metadata"]
        assert "meta.helm.sh/release-name" not in kept.get("annotations", {})
    assert release.get("role", "-n", copies, "kruise-manager-imagepulljobgate-namespaced-role")
    assert release.get("deployment", "-n", other, "kruise-controller-manager")
    release.helm("uninstall", NAME, "-n", other, "--no-hooks")
    for name in (other, copies):
        assert "deletionTimestamp" not in release.get("namespace", name)["metadata"]


# ---- reviews and controllers with separate identities

WEBHOOKS = f"system:serviceaccount:{NAMESPACE}:kruise-webhooks"
_SET = """
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: web}}
  containers: [{name: agent, image: "agent:1"}]
"""


@pytest.fixture(scope="module")
def apart() -> Iterator[tuple[ControlPlane, Release]]:
    """Yield a release whose controllers have a separate Deployment."""
    with ControlPlane() as started:
        made = Release(started.kubectl, started.kubeconfig)
        made.install("--set=manager.separateControllers=true")
        yield started, made


@pytest.mark.behaviour("MGR-146")
@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete", "deletecollection"])
@pytest.mark.parametrize("resource", ["pods", "pods --subresource=status", "configmaps", "clonesets.apps.kruise.io"])
def test_processes_that_answer_reviews_may_not_write(
    apart: tuple[ControlPlane, Release], verb: str, resource: str
) -> None:
    for namespace in ("", "default", NAMESPACE):
        assert not apart[1].may(verb, resource, namespace, user=WEBHOOKS)


@pytest.fixture
def distributing(apart: tuple[ControlPlane, Release]) -> Iterator[ControlPlane]:
    """Enable the gate with which webhooks create Secrets and ConfigMaps."""
    control_plane, release = apart
    value = "--set=manager.separateControllers=true"
    release.upgrade(value, "--set=featureGates=ResourceDistributionGate=true")
    yield control_plane
    release.upgrade(value)


@pytest.mark.behaviour("MGR-146")
@pytest.mark.skipif(not HAS_POLICIES, reason="without ValidatingAdmissionPolicies only RBAC applies")
def test_processes_that_answer_reviews_create_objects_only_with_dry_run(
    distributing: ControlPlane, apart: tuple[ControlPlane, Release]
) -> None:
    token = apart[1].kubectl("create", "token", "kruise-webhooks", "-n", NAMESPACE).stdout.strip()
    template = {"spec": {"containers": [{"name": "main", "image": "nginx"}]}}

    def create(resource: str, query: str = "") -> tuple[int, str]:
        body = {"metadata": {"generateName": "made-"}} | ({"template": template} if resource == "podtemplates" else {})
        path = f"/api/v1/namespaces/{NAMESPACE}/{resource}{query}"
        code, answer = distributing.request("POST", path, body, token=token)
        return code, answer.get("message", "")

    eventually(lambda: create("podtemplates")[0] == 403, "the policy is in force", 30)
    for resource in ("configmaps", "podtemplates", "secrets"):
        eventually(lambda: create(resource, "?dryRun=All")[0] == 201, "the right is granted", 30)  # noqa: B023
        code, message = create(resource)
        assert (code, "only with dry-run" in message) == (403, True), message


@pytest.mark.behaviour("MGR-146")
def test_processes_that_answer_reviews_have_only_the_rights_they_need(apart: tuple[ControlPlane, Release]) -> None:
    for user, rules in ((WEBHOOKS, webhook_rules()), (SERVICE_ACCOUNT, default_rules())):
        for attributes in _asked(rules):
            assert may(apart[0], user, attributes), f"{user}: {attributes}"


@pytest.mark.behaviour("MGR-146")
@pytest.mark.parametrize(
    ("group", "resource", "namespace"),
    [
        ("", "secrets", NAMESPACE),
        ("", "secrets", "kruise-daemon-config"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", ""),
        ("apiextensions.k8s.io", "customresourcedefinitions", ""),
        ("coordination.k8s.io", "leases", NAMESPACE),
    ],
)
def test_only_controllers_write_certificates_and_ca_bundles_of_webhooks(
    apart: tuple[ControlPlane, Release], group: str, resource: str, namespace: str
) -> None:
    named = {
        "secrets": "kruise-webhook-certs",
        "mutatingwebhookconfigurations": "kruise-mutating-webhook-configuration",
        "validatingwebhookconfigurations": "kruise-validating-webhook-configuration",
        "customresourcedefinitions": DEFINITION,
    }.get(resource, "")
    for verb, name in product(("create", "update", "patch", "delete"), {"", named}):
        asked = {"group": group, "resource": resource, "namespace": namespace, "verb": verb, "name": name}
        assert not may(apart[0], WEBHOOKS, asked), asked
    reading = {"group": "", "resource": "secrets", "namespace": NAMESPACE, "verb": "get"}
    assert may(apart[0], WEBHOOKS, {**reading, "name": "kruise-webhook-certs"})
    assert not may(apart[0], WEBHOOKS, reading)


def manager_as(account: str, control_plane: ControlPlane, *flags: str) -> list[str]:
    """Return the command that runs a manager on this machine with the permissions of the account."""
    return [
        "app.cli.main",
        "manager",
        f"--kubeconfig={control_plane.kubeconfig_for_service_account(NAMESPACE, account)}",
        "--webhook-host=127.0.0.1",
        f"--webhook-port={free_port('127.0.0.1')}",
        f"--health-probe-addr=127.0.0.1:{free_port('127.0.0.1')}",
        "--metrics-addr=0",
        *flags,
    ]


def flags_of(release: Release, deployment: str, *beginnings: str) -> list[str]:
    pod = release.get("deployment", "-n", NAMESPACE, deployment)["spec"]["template"]["spec"]
    return [one for one in pod["containers"][0]["args"] if one.startswith(beginnings)]


@pytest.mark.behaviour("MGR-146")
def test_controllers_register_webhooks_served_by_others(apart: tuple[ControlPlane, Release], tmp_path: Path) -> None:
    """Each process has the flags and permissions of its Deployment."""
    control_plane, release = apart
    wanted = ("--webhook", "--controllers")
    port = f"--webhook-port={free_port('127.0.0.1')}"
    flags = flags_of(release, "kruise-controller-manager", *wanted)
    answering = manager_as("kruise-webhooks", control_plane, *flags, port)
    # It registers the address of the other process, and listens where no review arrives.
    elsewhere = ("--webhook-bind-address=127.0.0.2", "--certificate-rotation-step=3s")
    flags = flags_of(release, "kruise-controllers", *wanted)
    reconciling = manager_as("kruise-manager", control_plane, *flags, port, *elsewhere)
    logs = [tmp_path / name for name in ("controllers.log", "webhooks.log")]
    wait_for_service_account(release.kubectl, "default")
    with running(reconciling, logs[0]):
        eventually(lambda: "no replica serves reviews" in logs[0].read_text(), "the controllers wait", 60)
        found = release.get("mutatingwebhookconfiguration", "kruise-mutating-webhook-configuration")
        assert not found.get("webhooks")
        with running(answering, logs[1]):
            eventually(lambda: "webhooks registered" in logs[0].read_text(), "webhooks are registered", 90)
            release.kubectl("apply", "-f", "-", stdin=_SET)

            def containers() -> bool:
                run = ("run", "web", "--image=nginx", "--labels=app=web", "--dry-run=server", "-o", "json")
                return "agent:1" in release.kubectl(*run, check=False).stdout

            eventually(containers, "a Pod gets its sidecar", 30)

            def served() -> str:
                return ssl.get_server_certificate(("127.0.0.1", int(port.partition("=")[2])))

            # A new CA and certificate are announced, published and then served. The API server's trust never breaks.
            before = served()
            release.kubectl("delete", "secret", "-n", NAMESPACE, "kruise-webhook-certs")

            def rotated() -> bool:
                assert containers()
                return served() != before

            eventually(rotated, "the certificate that the controllers made is served", 60)
            assert containers()
            for log in logs:
                assert "missing permission" not in log.read_text()
                assert "is forbidden" not in log.read_text()
    holder = release.get("lease", "-n", NAMESPACE, "kruise-manager")["spec"]["holderIdentity"]
    assert not holder


_PULL_SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: regcred, namespace: shop}
type: kubernetes.io/dockerconfigjson
data: {.dockerconfigjson: e30=}
---
apiVersion: apps.kruise.io/v1beta1
kind: ImagePullJob
metadata: {name: warm, namespace: shop}
spec: {image: nginx, pullSecrets: [regcred], completionPolicy: {type: Never}}
"""


@pytest.mark.behaviour("IMG-113")
def test_the_pull_secret_event_names_the_required_value(apart: tuple[ControlPlane, Release], tmp_path: Path) -> None:
    control_plane, release = apart
    value = "manager.separateControllers=true"
    (gates,) = flags_of(release, "kruise-controllers", "--feature-gates=")
    release.kubectl("create", "namespace", "shop")
    log = tmp_path / "manager.log"
    with running(manager_as("kruise-manager", control_plane, gates), log):
        eventually(lambda: "webhooks registered" in log.read_text(), "webhooks are registered", 90)
        release.kubectl("apply", "-f", "-", stdin=_PULL_SECRET)

        def told() -> list[str]:
            events = release.get("events", "-n", "shop", "--field-selector=reason=PullSecretForbidden")["items"]
            return [one["message"] for one in events]

        (message,) = eventually(told, "an event names the missing permission", 60)
        assert "add shop to imagePullJob.secretNamespaces" in message
        assert "missing permission" not in log.read_text()
        release.upgrade(f"--set={value}", "--set=imagePullJob.secretNamespaces={shop}")

        def copies() -> list[str]:
            return release.kubectl("get", "secrets", "-n", "kruise-daemon-config", "-o", "name").stdout.split()

        (copy,) = eventually(copies, "the Secret is copied without a restart", 60)
        assert copy.startswith("secret/regcred-")
        release.kubectl("delete", "imagepulljob", "-n", "shop", "warm", "--timeout=60s")
        eventually(lambda: not copies(), "the copy is deleted with its job", 30)


_UNFINISHED = """
apiVersion: apps.kruise.io/v1beta1
kind: ImagePullJob
metadata: {name: unfinished, namespace: default, finalizers: [apps.kruise.io/deletion-protection]}
spec: {image: nginx, completionPolicy: {type: Never}}
---
apiVersion: apps.kruise.io/v1alpha1
kind: EphemeralJob
metadata: {name: unfinished, namespace: default, finalizers: [apps.kruise.io/ephemeralcontainers-cleanup]}
spec: {selector: {matchLabels: {app: web}}, template: {ephemeralContainers: []}}
"""


@pytest.mark.behaviour("MGR-86")
def test_an_uninstall_does_not_wait_for_jobs_with_finalizers(apart: tuple[ControlPlane, Release]) -> None:
    """This test comes last, because it uninstalls the shared release."""
    _, release = apart
    for kind in ("mutating", "validating"):
        release.kubectl("delete", f"{kind}webhookconfiguration", f"kruise-{kind}-webhook-configuration")
    release.kubectl("apply", "-f", "-", stdin=_UNFINISHED)
    command = ["-m", "app.cli.main", "prepare-uninstall", f"--kubeconfig={release.kubeconfig}", f"-n={NAMESPACE}"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    release.helm("uninstall", NAME, "--no-hooks", "--wait", "--timeout=90s")
    assert not [name for name in release.kubectl("get", "crd", "-o", "name").stdout.split() if "kruise.io" in name]
