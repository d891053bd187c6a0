"""The chart matches the declarations in the code: what `helm template` prints, and what it rejects."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.admission.policies import WebhookPolicies, apply_policies
from app.api.crd import manifests
from app.certs.sources import CA_FILE, CERT_FILE, KEY_FILE
from app.daemon.flags import parser
from app.features.deletionprotection.protected_kinds import load_table
from app.generate import chart
from app.generate.chart import admission_policies
from app.manager import rbac, uninstall
from app.manager.features import kinds, workloads
from app.manager.flags import parse_flags
from app.manager.gates import GATES, parse_gates
from app.manager.rbac import default_rules, optional_rules, rules_of_gates
from app.manager.settings import SECRET_NAME
from app.manager.webhook_handlers import WEBHOOKS
from tests.cluster.helm import helm
from tests.deploy.rendering import CHART, ROOT, find, refusal, render

#: A values file of OpenKruise's chart with all of its keys.
OPENKRUISE_VALUES: dict[str, Any] = {
    "crds": {"managed": True},
    "installation": {"namespace": "kruise-system", "createNamespace": True, "roleListGroups": ["*"]},
    "featureGates": "ImagePullJobGate=true",
    "externalCerts": {"annotations": {}},
    "enableKubeCacheMutationDetector": False,
    "imagePullSecrets": [{"name": "mirror"}],
    "serviceAccount": {"annotations": {"a": "b"}},
    "manager": {
        "replicas": 3,
        "image": {"repository": "mirror.example/kruise-manager", "tag": "v9"},
        "webhook": {"port": 9877},
        "metrics": {"port": 8081},
        "healthProbe": {"port": 8001},
        "pprofAddr": "localhost:8090",
        "resyncPeriod": "0",
        "loggingFormat": "json",
        "log": {"level": "5"},
        "resources": {"limits": {"cpu": "200m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
        "hostNetwork": True,
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
        "nodeSelector": {"role": "system"},
        "tolerations": [{"operator": "Exists"}],
    },
    "webhookConfiguration": {"timeoutSeconds": 30, "aksIntegration": False},
    "daemon": {
        "log": {"level": "4"},
        "port": 10221,
        "enablePprof": True,
        "pprofAddr": "localhost:10222",
        "socketLocation": "/var/run",
        "socketFile": "",
        "affinity": {},
        "nodeSelector": {},
        "resources": {},
        "extraEnvs": [],
        "credentialProvider": {"enable": False, "configmap": "c", "hostPath": "h", "awsCredentialsDir": ""},
    },
    "helmHooks": {"image": {"repository": "openkruise/kruise-helm-hook", "tag": "v0.1.0"}},
}


def manager_of(documents: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the Pod's spec and its only container."""
    spec: dict[str, Any] = find(documents, "Deployment", "kruise-controller-manager")["spec"]["template"]["spec"]
    return spec, spec["containers"][0]


def policies_of(documents: list[dict[str, Any]]) -> WebhookPolicies:
    data = find(documents, "ConfigMap", "kruise-webhook-policies")["data"]
    return WebhookPolicies.model_validate(yaml.safe_load(data["webhooks.yaml"]))


# ---- tests without Helm


def test_chart_and_package_have_one_version() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    described = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert described["appVersion"] == described["version"] == package


def test_every_value_with_a_default_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))

    def check(values: dict[str, Any], known: dict[str, Any], path: str) -> None:
        for name, value in values.items():
            assert name in known["properties"], f"{path}.{name}"
            inner = known["properties"][name]
            if isinstance(value, dict) and "properties" in inner:
                assert inner["additionalProperties"] is False
                check(value, inner, f"{path}.{name}")

    check(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), schema, "")


def test_braces_in_descriptions_are_not_template_actions() -> None:
    policy = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": {"text": "{{ .Values }}"}}
    text = chart.templates((), (), (), [policy], (), (), {})[f"{chart.FOLDER}/deletion-protection-policies.yaml"]
    assert '{{ "{{" }} .Values }}' in text


# ---- rendered charts


@pytest.fixture(scope="module")
def defaults() -> list[dict[str, Any]]:
    return render()


@pytest.mark.controlplane
def test_helm_lint_finds_no_errors() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert "[ERROR]" not in done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.controlplane
def test_the_chart_renders_without_a_cluster(defaults: list[dict[str, Any]]) -> None:
    # A Helm that was built without a version assumes v1.20.0.
    assert render(kubernetes="v1.20.0") == defaults
    assert "Kubernetes v1.21.14 is too old: 1.22 or newer is required" in refusal(kubernetes="v1.21.14")
    old = render(kubernetes="v1.29.15-eks-1")
    assert old == [one for one in defaults if not one["kind"].startswith("ValidatingAdmissionPolicy")] != defaults
    assert "1.30 or newer" in refusal("deletionProtection.admissionPolicies=true", kubernetes="v1.29.0")


@pytest.mark.controlplane
@pytest.mark.behaviour("KD-1", "KD-80")
def test_the_agent_runs_on_every_node_with_minimal_rights(defaults: list[dict[str, Any]]) -> None:
    daemon_set = find(defaults, "DaemonSet", "kruise-daemon")
    pod = daemon_set["spec"]["template"]["spec"]
    assert daemon_set["metadata"]["labels"]["control-plane"] == "daemon"
    assert pod["hostNetwork"] is True
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]}]}
    (container,) = pod["containers"]
    assert container["args"] == ["daemon", "--addr=:10221", "--v=4", "--feature-gates=ImagePullJobGate=true"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 10221}
    assert container["volumeMounts"] == [{"name": "runtime-socket", "mountPath": "/hostvarrun", "readOnly": True}]
    assert pod["volumes"] == [{"name": "runtime-socket", "hostPath": {"path": "/var/run"}}]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    rules = find(defaults, "ClusterRole", "kruise-daemon-role")["rules"]
    for rule in rules:
        assert "*" not in rule["resources"] + rule["verbs"] + rule["apiGroups"]
        assert "secrets" not in rule["resources"]
    written = {resource for rule in rules for resource in rule["resources"] if {"patch", "update"} & set(rule["verbs"])}
    assert {resource for resource in written if not resource.endswith("/status")} == {"events"}
    secrets = find(defaults, "Role", "kruise-daemon-secret-role")
    assert secrets["metadata"]["namespace"] == "kruise-daemon-config"
    assert secrets["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]


@pytest.mark.controlplane
@pytest.mark.behaviour("KD-36")
def test_the_agent_gets_credentials_volumes_annotations_and_a_priority(tmp_path: Path) -> None:
    provider = {"configmap": "providers", "hostPath": "/opt/plugins", "awsCredentialsDir": "/etc/aws"}
    daemon = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"pool": "a"},
        "serviceAccount": {"annotations": {"role": "agent"}},
        "credentialProvider": {"enable": True, **provider},
        "dockerConfig": {"hostPath": "/root/.docker"},
        "extraVolumes": [{"name": "ca", "hostPath": {"path": "/etc/ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/certs"}],
    }
    values = {"daemon": daemon, "serviceAccount": {"annotations": {"role": "both", "team": "x"}}}
    documents = render(values=values, tmp_path=tmp_path)
    pod = find(documents, "DaemonSet", "kruise-daemon")["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "a"}
    assert pod["priorityClassName"] == "system-node-critical"
    account = find(documents, "ServiceAccount", "kruise-daemon")
    assert account["metadata"]["annotations"] == {"role": "agent", "team": "x"}
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["aws-credentials"] == "/root/.aws"
    assert mounts["ca"] == "/etc/ssl/certs"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert volumes["aws-credentials"]["hostPath"] == {"path": "/etc/aws"}
    assert volumes["ca"]["hostPath"] == {"path": "/etc/ca"}
    assert volumes["plugin-bin"]["hostPath"] == {"path": "/opt/plugins"}
    assert volumes["plugin-config"]["configMap"] == {"name": "providers"}
    assert volumes["docker-config"]["hostPath"] == {"path": "/root/.docker", "type": "DirectoryOrCreate"}
    # The agent finds the mounted socket by default and through the flag.
    flags = parser().parse_args(pod["containers"][0]["args"][1:])
    assert flags.plugin_bin_dir == mounts["plugin-bin"]
    assert flags.plugin_config_file == mounts["plugin-config"]
    assert flags.docker_config == mounts["docker-config"]
    quota = find(documents, "ResourceQuota", "kruise-critical-pods")["spec"]
    (scope,) = quota["scopeSelector"]["matchExpressions"]
    assert scope["values"] == ["system-cluster-critical", "system-node-critical"]
    # The quota must allow one Pod on each node.
    assert quota["hard"] == {"pods": "20000"}


@pytest.mark.controlplane
@pytest.mark.behaviour("KD-107")
def test_the_agent_gets_a_docker_configuration_from_a_file_or_a_secret() -> None:
    def volumes(*settings: str) -> dict[str, Any]:
        pod = find(render(*settings), "DaemonSet", "kruise-daemon")["spec"]["template"]["spec"]
        assert ("--docker-config=/kruise/docker" in pod["containers"][0]["args"]) is bool(settings)
        return {volume["name"]: volume for volume in pod["volumes"]}

    assert "docker-config" not in volumes()
    file = "/var/lib/kubelet/config.json"
    found = volumes(f"daemon.dockerConfig.hostPath={file}")
    assert found["docker-config"]["hostPath"] == {"path": file, "type": "File"}
    found = volumes("daemon.dockerConfig.secret=mirror")
    items = [{"key": ".dockerconfigjson", "path": "config.json"}]
    assert found["docker-config"]["secret"] == {"secretName": "mirror", "items": items}
    both = ("daemon.dockerConfig.secret=mirror", "daemon.dockerConfig.hostPath=/etc/docker")
    assert "daemon.dockerConfig: set hostPath or secret, not both" in refusal(*both)


@pytest.mark.controlplane
@pytest.mark.parametrize("off", ["daemon.enabled=false", "featureGates=KruiseDaemon=false"])
def test_disabling_the_agent_removes_all_its_objects(off: str) -> None:
    found = [one["kind"] for one in render(off) if "kruise-daemon" in one["metadata"]["name"]]
    # Agents of other installations read copies of pull secrets, too.
    assert found == (["Namespace"] if off == "daemon.enabled=false" else [])


@pytest.mark.controlplane
@pytest.mark.behaviour("MGR-90", "MGR-91", "MGR-93", "MGR-124")
def test_names_and_layout_match_openkruise(defaults: list[dict[str, Any]]) -> None:
    names = {(one["kind"], one["metadata"]["name"]) for one in defaults}
    assert {
        ("Namespace", "kruise-system"),
        ("Deployment", "kruise-controller-manager"),
        ("Service", "kruise-webhook-service"),
        ("Secret", "kruise-webhook-certs"),
        ("ServiceAccount", "kruise-manager"),
        ("ClusterRole", "kruise-manager-role"),
        ("PodDisruptionBudget", "kruise-controller-manager"),
        ("NetworkPolicy", "kruise-controller-manager"),
        ("MutatingWebhookConfiguration", "kruise-mutating-webhook-configuration"),
        ("ValidatingWebhookConfiguration", "kruise-validating-webhook-configuration"),
        ("ClusterRole", "aggregate-kruise-view"),
        ("ClusterRole", "aggregate-kruise-edit"),
        ("ClusterRole", "aggregate-kruise-admin"),
    } <= names
    assert not any(kind == "ServiceMonitor" for kind, _ in names)
    deployment = find(defaults, "Deployment", "kruise-controller-manager")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": "100%"}
    assert deployment["minReadySeconds"] == 3
    assert deployment["template"]["metadata"]["labels"]["control-plane"] == "controller-manager"
    service = find(defaults, "Service", "kruise-webhook-service")["spec"]
    assert service["selector"] == deployment["selector"]["matchLabels"] == {"control-plane": "controller-manager"}
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(443, 9876)]
    assert not service.get("publishNotReadyAddresses")
    assert deployment["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert find(defaults, "Secret", SECRET_NAME).get("data") is None


@pytest.mark.controlplane
@pytest.mark.behaviour("MGR-90", "MGR-124")
def test_the_manager_has_no_rights_on_its_node(defaults: list[dict[str, Any]]) -> None:
    spec, container = manager_of(defaults)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 65534
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert spec["terminationGracePeriodSeconds"] >= 10
    assert spec["topologySpreadConstraints"][0]["topologyKey"] == "topology.kubernetes.io/zone"
    assert "podAntiAffinity" in spec["affinity"]


@pytest.mark.controlplane
def test_roles_match_the_declarations(defaults: list[dict[str, Any]]) -> None:
    for declared in rbac.manifests(default_rules(), "kruise-system"):
        if declared["kind"] in ("ClusterRole", "Role"):
            found = find(defaults, declared["kind"], declared["metadata"]["name"])
            assert found.get("rules") == declared.get("rules")
            assert found.get("aggregationRule") == declared.get("aggregationRule")
        if declared["kind"].endswith("Binding"):
            assert find(defaults, declared["kind"], declared["metadata"]["name"])["subjects"] == declared["subjects"]
    for role in defaults:
        for rule in role.get("rules") or ():
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], role["metadata"]["name"]


@pytest.mark.controlplane
@pytest.mark.parametrize("group", ["AllBeta", "ResourceDistributionGate"])
def test_rights_of_a_gate_are_granted_only_with_the_gate(defaults: list[dict[str, Any]], group: str) -> None:
    rules = rules_of_gates()["ResourceDistributionGate"]
    name = "kruise-manager-resourcedistributiongate-role"
    assert not [one for one in defaults if one["metadata"]["name"] == name]
    granted = find(render(f"featureGates={group}=true"), "ClusterRole", name)["rules"]
    assert granted == rbac.merged(rules)
    off = render("featureGates=AllBeta=true\\,ResourceDistributionGate=false")
    assert not [one for one in off if one["metadata"]["name"] == name]


def rules_on_secrets(documents: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the bound rules on Secrets by account and namespace (empty: all namespaces)."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for binding in (one for one in documents if one["kind"].endswith("Binding") and "roleRef" in one):
        namespace = binding["metadata"].get("namespace", "")
        role = next(
            one
            for one in documents
            if (one["kind"], one["metadata"]["name"]) == (binding["roleRef"]["kind"], binding["roleRef"]["name"])
            and one["metadata"].get("namespace", namespace) == namespace
        )
        rules = [rule for rule in role.get("rules") or () if not {"secrets", "*"}.isdisjoint(rule["resources"])]
        for subject in binding["subjects"] if rules else ():
            found.setdefault((subject["name"], namespace), []).extend(rules)
    return found


@pytest.mark.controlplane
@pytest.mark.behaviour("IMG-113")
def test_image_jobs_are_on_by_default_without_access_to_user_secrets(defaults: list[dict[str, Any]]) -> None:
    assert "--feature-gates=ImagePullJobGate=true" in manager_of(defaults)[1]["args"]
    assert find(defaults, "ClusterRole", "kruise-manager-imagepulljobgate-role")
    found = rules_on_secrets(defaults)
    assert set(found) == {
        ("kruise-manager", "kruise-system"),
        ("kruise-manager", "kruise-daemon-config"),
        ("kruise-daemon", "kruise-daemon-config"),
    }
    own = [rule for rule in found["kruise-manager", "kruise-system"] if rule["verbs"] != ["create"]]
    assert [rule["resourceNames"] for rule in own] == [["kruise-webhook-certs"]]
    (copies,) = found["kruise-manager", "kruise-daemon-config"]
    assert copies["verbs"] == ["get", "list", "watch", "create", "patch", "delete"]
    apart = rules_on_secrets(render("manager.separateControllers=true"))
    assert {namespace for account, namespace in apart if account == "kruise-webhooks"} == {"kruise-system"}


@pytest.mark.controlplane
@pytest.mark.behaviour("IMG-113")
@pytest.mark.parametrize(
    ("setting", "where"),
    [
        ("imagePullJob.secretNamespaces={shop,batch,shop}", {"shop", "batch"}),
        ("imagePullJob.secretNamespaces={shop,*}", {""}),
        ("imagePullJob.secretNamespaces=null", set()),
        ("imagePullJob=null", set()),
        ("featureGates=ImagePullJobGate=false,imagePullJob.secretNamespaces={shop}", set()),
    ],
)
def test_the_manager_reads_pull_secrets_by_name_in_granted_namespaces(setting: str, where: set[str]) -> None:
    of_manager = {
        namespace: rules
        for (account, namespace), rules in rules_on_secrets(render(setting)).items()
        if account == "kruise-manager" and namespace not in ("kruise-system", "kruise-daemon-config")
    }
    assert set(of_manager) == where
    declared = rbac.merged(optional_rules()["pull-secrets"])
    assert all(rules == declared for rules in of_manager.values())


@pytest.mark.controlplane
@pytest.mark.parametrize(
    "gates",
    [
        "",
        "AllAlpha=true",
        "AllBeta=false",
        "KruiseDaemon=false,ImagePullJobGate=true,SidecarTerminator=true",
        "PreDownloadImageForInPlaceUpdate=true",
        "PreDownloadImageForDaemonSetUpdate=true,ImagePullJobGate=false",
        "AllBeta=false,AllAlpha=true",
        "PodWebhook=false,EnhancedLivenessProbe=true",
        "RepairMissedPods=true,ResourceDistributionGate=true",
    ],
)
def test_chart_and_manager_agree_on_enabled_gates(gates: str, tmp_path: Path) -> None:
    documents = render(values={"featureGates": gates}, tmp_path=tmp_path)
    names = {one["metadata"]["name"] for one in documents if one["kind"] == "ClusterRole"}
    on = {gate for gate in rules_of_gates() if f"kruise-manager-{gate.lower()}-role" in names}
    assert on == {gate for gate in rules_of_gates() if parse_gates(gates).enabled(gate)}
    agents = any(one["kind"] == "DaemonSet" for one in documents)
    assert agents is parse_gates(gates).enabled("KruiseDaemon")
    namespaces = {one["metadata"]["name"] for one in documents if one["kind"] == "Namespace"}
    assert ("kruise-daemon-config" in namespaces) is agents


@pytest.mark.controlplane
def test_the_uninstall_hook_has_its_own_role(defaults: list[dict[str, Any]]) -> None:
    hooks = rbac.roles(uninstall.permissions(workloads()), "kruise-system", *["kruise-uninstall"] * 3)
    for declared in hooks:
        found = find(defaults, declared["kind"], declared["metadata"]["name"])
        assert found.get("rules") == declared.get("rules")
        assert found.get("subjects") == declared.get("subjects")
        assert found["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    job = find(defaults, "Job", "kruise-uninstall")["spec"]["template"]["spec"]
    assert job["serviceAccountName"] == "kruise-uninstall"
    assert job["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.controlplane
def test_definitions_match_the_code_and_use_this_release(defaults: list[dict[str, Any]]) -> None:
    elsewhere = render("installation.namespace=kruise-elsewhere", "externalCerts.annotations.injector=me")
    for name, declared in manifests(kinds()).items():
        assert find(defaults, "CustomResourceDefinition", name)["spec"] == declared["spec"]
        moved = find(elsewhere, "CustomResourceDefinition", name)
        assert moved["metadata"]["annotations"] == {"injector": "me"}
        if len(declared["spec"]["versions"]) > 1:
            service = moved["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
            assert service["namespace"] == "kruise-elsewhere"
    assert all(
        one["metadata"].get("namespace", "kruise-elsewhere") in ("kruise-elsewhere", "kruise-daemon-config")
        and all(subject["namespace"] == "kruise-elsewhere" for subject in one.get("subjects", ()))
        for one in elsewhere
    )
    assert not [one for one in render("crds.managed=false") if one["kind"] == "CustomResourceDefinition"]


@pytest.mark.controlplane
def test_protection_by_the_api_server_is_opt_in(defaults: list[dict[str, Any]]) -> None:
    policies = {one["metadata"]["name"] for one in defaults if one["kind"].startswith("ValidatingAdmissionPolicy")}
    assert policies == {"kruise-daemon-own-node"}
    chosen = render("deletionProtection.admissionPolicies=true")
    declared = admission_policies(load_table())
    assert declared
    for policy in declared:
        assert find(chosen, policy["kind"], policy["metadata"]["name"])["spec"] == policy["spec"]


@pytest.mark.controlplane
@pytest.mark.behaviour("MGR-85")
def test_values_of_the_openkruise_chart_are_accepted(tmp_path: Path) -> None:
    documents = render(values=OPENKRUISE_VALUES, tmp_path=tmp_path)
    spec, container = manager_of(documents)
    assert container["image"] == "mirror.example/kruise-manager:v9"
    assert {
        "--webhook-port=9877",
        "--metrics-addr=:8081",
        "--health-probe-addr=:8001",
        "--v=5",
        "--logging-format=json",
        "--feature-gates=ImagePullJobGate=true",
    } <= set(container["args"])
    assert container["resources"]["limits"] == {"cpu": "200m", "memory": "512Mi"}
    assert spec["hostNetwork"] is True
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "role": "system"}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["affinity"]["nodeAffinity"]
    assert spec["imagePullSecrets"] == [{"name": "mirror"}]
    assert find(documents, "Deployment", "kruise-controller-manager")["spec"]["replicas"] == 3
    assert find(documents, "ServiceAccount", "kruise-manager")["metadata"]["annotations"] == {"a": "b"}
    assert find(documents, "Service", "kruise-webhook-service")["spec"]["ports"][0]["targetPort"] == 9877
    listing = find(documents, "ClusterRole", "kruise-manager-list-role")["rules"]
    assert listing == [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}]
    registered = apply_policies(WEBHOOKS, policies_of(documents), "kruise-system")
    assert {webhook.timeout_seconds for webhook in registered} == {30}


@pytest.mark.controlplane
def test_flags_are_those_of_the_manager(defaults: list[dict[str, Any]], tmp_path: Path) -> None:
    for documents in (defaults, render(values=OPENKRUISE_VALUES, tmp_path=tmp_path)):
        command, *flags = manager_of(documents)[1]["args"]
        assert command == "manager"
        assert parse_flags(flags).text("policies") == "/etc/kruise/policies"


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("manager.replcias=3", "at '/manager': additional properties 'replcias' not allowed"),
        ("managr.replicas=3", "additional properties 'managr' not allowed"),
        ("manager.replicas=many", "at '/manager/replicas': got string, want integer"),
        ("manager.loggingFormat=xml", "value must be one of '', 'text', 'json'"),
        ("webhookConfiguration.timeoutSeconds=31", "maximum: got 31, want 30"),
        (
            "webhookConfiguration.webhooks.mpdo\\.kb\\.io.failurePolicy=Fail",
            'no webhook is called "mpdo.kb.io"; known are m',
        ),
        ("imagePullJob.secretNamespaces={Shop}", "at '/imagePullJob/secretNamespaces/0'"),
        ("installation.namespace=Kruise", "does not match pattern"),
    ],
)
def test_an_unknown_value_is_refused_by_name(setting: str, message: str) -> None:
    assert message in refusal(setting)


@pytest.mark.controlplane
def test_an_unknown_gate_is_refused_with_the_known_names() -> None:
    said = refusal("featureGates=PodWebhok=true")
    assert 'featureGates: unknown feature gate "PodWebhok"; known are ' in said
    assert all(name in said for name in (*GATES, "AllAlpha", "AllBeta"))
    assert "PodWebhook: expected true or false" in refusal("featureGates=PodWebhook=maybe")
    assert manager_of(render("featureGates=EnhancedLivenessProbeGate=true\\,AllBeta=false"))


@pytest.mark.controlplane
def test_overrides_arrive_at_the_manager_unchanged() -> None:
    documents = render(
        "webhookConfiguration.webhooks.mpod\\.kb\\.io.failurePolicy=Ignore",
        "webhookConfiguration.webhooks.mpod\\.kb\\.io.timeoutSeconds=3",
        "webhookConfiguration.timeoutSeconds=7",
        "webhookConfiguration.excludedNamespaces={monitoring,batch}",
        "webhookConfiguration.aksIntegration=true",
    )
    webhooks = {one.name: one for one in apply_policies(WEBHOOKS, policies_of(documents), "kruise-system")}
    pod = webhooks.pop("mpod.kb.io")
    assert (pod.failure_policy, pod.timeout_seconds) == ("Ignore", 3)
    assert {webhook.timeout_seconds for webhook in webhooks.values()} == {7}
    expressions = pod.namespace_selector["matchExpressions"]
    assert {"key": "control-plane", "operator": "NotIn", "values": ["true"]} in expressions
    assert {"monitoring", "batch"} <= {value for one in expressions for value in one["values"]}
    old = policies_of(render("webhookConfiguration.failurePolicy.pods=Ignore")).webhooks
    pods = ("mpod.kb.io", "vpod.kb.io", "vpodeviction.kb.io")
    assert {name: policy.failure_policy for name, policy in old.items()} == dict.fromkeys(pods, "Ignore")


@pytest.mark.controlplane
def test_only_a_changed_policy_causes_a_rollout() -> None:
    def annotations(*settings: str) -> dict[str, str]:
        template = find(render(*settings), "Deployment", "kruise-controller-manager")["spec"]["template"]
        found: dict[str, str] = template["metadata"]["annotations"]
        return found

    assert annotations() == annotations("installation.createNamespace=false")
    assert annotations() != annotations("webhookConfiguration.excludedNamespaces={batch}")


ANY_ADDRESS = [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("values", "who"),
    [
        ({}, [*ANY_ADDRESS, {"namespaceSelector": {}}]),
        ({"webhookFrom": [{"namespaceSelector": {"x": "z"}}]}, [{"namespaceSelector": {"x": "z"}}]),
        (
            {"apiServerCIDRs": ["10.0.0.10/32", "fd00::/120"], "webhookFrom": [{"podSelector": {}}]},
            [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.10/32"}}, {"ipBlock": {"cidr": "fd00::/120"}}],
        ),
        (
            {"podCIDRs": ["10.244.0.0/16"]},
            [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.244.0.0/16"]}}, {"ipBlock": {"cidr": "::/0"}}],
        ),
        (
            {"podCIDRs": ["10.244.0.0/16", "fd01::/48"]},
            [
                {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.244.0.0/16"]}},
                {"ipBlock": {"cidr": "::/0", "except": ["fd01::/48"]}},
            ],
        ),
        ({"podCIDRs": ["10.244.0.0/16"], "apiServerCIDRs": ["10.0.0.10/32"]}, [{"ipBlock": {"cidr": "10.0.0.10/32"}}]),
    ],
)
def test_the_network_policy_limits_callers_of_the_webhook_port(values: dict, who: list, tmp_path: Path) -> None:
    policy = render(values={"networkPolicy": values}, tmp_path=tmp_path)
    webhook, health, metrics = find(policy, "NetworkPolicy", "kruise-controller-manager")["spec"]["ingress"]
    assert webhook == {"ports": [{"port": 9876}], "from": who}
    assert health == {"ports": [{"port": 8000}]}
    assert metrics["from"] == [{"podSelector": {}}]


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("values", "who"),
    [
        ({"serviceMonitor": {"enabled": True}}, [{"namespaceSelector": {}}]),
        (
            {"networkPolicy": {"metricsFrom": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}},
            [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
        ),
    ],
)
def test_metrics_are_readable_only_by_named_callers_and_scrapers(values: dict, who: list, tmp_path: Path) -> None:
    policy = render(values=values, tmp_path=tmp_path)
    *_, metrics = find(policy, "NetworkPolicy", "kruise-controller-manager")["spec"]["ingress"]
    assert metrics["from"] == who


@pytest.mark.controlplane
def test_metrics_are_scraped_on_request() -> None:
    documents = render("serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus")
    monitor = find(documents, "ServiceMonitor", "kruise-controller-manager")
    service = find(documents, "Service", "kruise-metrics-service")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [port["name"] for port in service["spec"]["ports"]] == [monitor["spec"]["endpoints"][0]["port"]]


@pytest.mark.controlplane
@pytest.mark.behaviour("MGR-93")
def test_external_certificates_are_mounted_without_a_chart_secret() -> None:
    documents = render("featureGates=EnableExternalCerts=true", "externalCerts.secretName=mine")
    assert not [one for one in documents if one["kind"] == "Secret"]
    spec, container = manager_of(documents)
    (volume,) = (one for one in spec["volumes"] if one["name"] == "certs")
    assert volume["secret"]["secretName"] == "mine"
    assert {item["path"] for item in volume["secret"]["items"]} == {CERT_FILE, KEY_FILE, CA_FILE}
    environment = {one["name"]: one.get("value") for one in container["env"]}
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "certs")
    assert (environment["WEBHOOK_CERT_WRITER"], environment["WEBHOOK_CERT_DIR"]) == ("fs", mount["mountPath"])
    assert len(kinds()) == len([one for one in documents if one["kind"] == "CustomResourceDefinition"])


def created_in_namespace(documents: list[dict[str, Any]], account: str) -> set[str]:
    """Return the resources that Roles allow the account to create."""
    bound = [one for one in documents if one["kind"] == "RoleBinding"]
    names = {one["roleRef"]["name"] for one in bound if account in (each["name"] for each in one["subjects"])}
    roles = [one for one in documents if one["kind"] == "Role" and one["metadata"]["name"] in names]
    rules = [rule for role in roles for rule in role["rules"] if "create" in rule["verbs"]]
    return {resource for rule in rules for resource in rule["resources"]}


@pytest.mark.behaviour("MGR-146")
@pytest.mark.controlplane
def test_separate_controllers_have_a_deployment_that_gets_no_reviews() -> None:
    documents = render("manager.separateControllers=true", "installation.roleListGroups={apps}")
    service = find(documents, "Service", "kruise-webhook-service")["spec"]["selector"]
    labels, arguments = {}, {}
    for name, account in (("kruise-controller-manager", "kruise-webhooks"), ("kruise-controllers", "kruise-manager")):
        spec = find(documents, "Deployment", name)["spec"]
        template = spec["template"]
        assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert template["spec"]["serviceAccountName"] == account
        labels[name], arguments[name] = template["metadata"]["labels"], template["spec"]["containers"][0]["args"]
    assert service.items() <= labels["kruise-controller-manager"].items()
    assert not service.items() <= labels["kruise-controllers"].items()
    assert "--controllers=false" in arguments["kruise-controller-manager"]
    assert "--controllers=false" not in arguments["kruise-controllers"]
    # Everything these processes may create in their namespace is limited to dry runs.
    gated = render("manager.separateControllers=true", "featureGates=ResourceDistributionGate=true")
    policy = find(gated, "ValidatingAdmissionPolicy", "kruise-webhooks-dry-run")["spec"]
    (limited,) = policy["matchConstraints"]["resourceRules"]
    assert set(limited["resources"]) == created_in_namespace(gated, "kruise-webhooks")
    # Deletions of CRDs are reviewed like other requests.
    (subject,) = find(documents, "ClusterRoleBinding", "kruise-manager-list-rolebinding")["subjects"]
    assert subject["name"] == "kruise-webhooks"
