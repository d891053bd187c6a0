"""Common kubectl commands in the order a user types them; each script runs in its own namespace."""

import json
from dataclasses import dataclass
from typing import Any

from tests.conformance.definitions import definition, fields, version
from tests.conformance.steps import config_map, deployment, pod


@dataclass(frozen=True)
class Command:
    """One command. ``stdin``: its input. ``editor``: a sed script that replaces the user's editor."""

    arguments: tuple[str, ...]
    stdin: str = ""
    editor: str = ""


def kubectl(line: str, *more: str, stdin: Any = "", editor: str = "") -> Command:
    """``line`` is split at spaces; ``more`` are arguments with spaces. Objects in ``stdin`` become JSON."""
    text = stdin if isinstance(stdin, str) else _documents(stdin)
    return Command((*line.split(), *more), text, editor)


def _documents(objects: Any) -> str:
    items = objects if isinstance(objects, list) else [objects]
    return "\n---\n".join(json.dumps(one) for one in items)


_MAP = config_map("settings", {"colour": "red", "size": "1"}, labels={"app": "web"})
_BLUE, _GREEN = ({**_MAP, "data": {"colour": colour}} for colour in ("blue", "green"))
_WEB = deployment("web", metadata={"labels": {"app": "web"}})
_POD = pod("one", metadata={"labels": {"app": "web"}})
_SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]},
}
_NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-{ns}"}}
_WATTS = fields(
    ("watts",),
    watts={"type": "integer", "description": "How bright.", "minimum": 1},
    colour={"type": "string", "enum": ["warm", "cold"]},
)
_LAMP_SCHEMA = fields(
    ("spec",), spec={**_WATTS, "description": "Desired state of the Lamp."}, status=fields(on={"type": "boolean"})
)
_CRD = definition(
    "lamps",
    "Lamp",
    version(
        schema={**_LAMP_SCHEMA, "description": "Lamp gives light."},
        additionalPrinterColumns=[{"name": "Watts", "type": "integer", "jsonPath": ".spec.watts"}],
        subresources={"status": {}},
    ),
    group="{ns}.example.com",
    names={"plural": "lamps", "kind": "Lamp", "shortNames": ["lp"]},
)
_LAMP = {"apiVersion": "{ns}.example.com/v1", "kind": "Lamp", "metadata": {"name": "desk"}, "spec": {"watts": 5}}
_CREATE = kubectl("apply -f -", stdin=[_MAP, _WEB, _SERVICE, _POD])

SCRIPTS: dict[str, list[Command]] = {
    "apply": [
        _CREATE,
        _CREATE,
        kubectl("apply -f -", stdin=_BLUE),
        kubectl("get configmap settings -o", "jsonpath={.data}"),
        kubectl("apply -f -", stdin=deployment("web", minReadySeconds=3)),
        kubectl("get deployment web -o", "jsonpath={.spec.minReadySeconds} {.metadata.generation} {.metadata.labels}"),
        kubectl("apply -f - --dry-run=server", stdin=_GREEN),
        kubectl("apply -f - --dry-run=client", stdin=_GREEN),
        kubectl("apply view-last-applied configmap settings"),
        kubectl("delete -f -", stdin=[_MAP, _WEB]),
    ],
    "apply-on-created": [
        kubectl("create -f -", stdin=_MAP),
        kubectl("apply -f -", stdin=_MAP),
        kubectl("create -f -", stdin=_MAP),
    ],
    "apply-server-side": [
        kubectl("apply --server-side -f -", stdin=[_MAP, _WEB]),
        kubectl("apply --server-side -f -", stdin=_MAP),
        kubectl("apply --server-side --field-manager=other -f -", stdin=_BLUE),
        kubectl("apply --server-side --field-manager=other --force-conflicts -f -", stdin=_BLUE),
        kubectl("get configmap settings -o yaml --show-managed-fields"),
        kubectl("apply --server-side --dry-run=server -f -", stdin=_MAP),
    ],
    "apply-client-then-server-side": [
        kubectl("apply -f -", stdin=_MAP),
        kubectl("apply --server-side -f -", stdin=_BLUE),
    ],
    "managed-fields": [
        _CREATE,
        kubectl("get pods,deployments,services,configmaps -o yaml --show-managed-fields"),
        kubectl("scale deployment web --replicas=1"),
        kubectl("label deployment web app-"),
        kubectl("annotate configmap settings note=x --field-manager=kubectl-d"),
        kubectl("edit configmap settings", editor="s/colour: red/colour: blue/"),
        kubectl("patch pod one --subresource=status --type=merge -p", '{"status":{"phase":"Running"}}'),
        kubectl("get pods,deployments,configmaps -o yaml --show-managed-fields"),
        kubectl("apply --server-side -f -", stdin=_GREEN),
        kubectl("apply --server-side --force-conflicts -f -", stdin=_GREEN),
        kubectl("get configmap settings -o yaml --show-managed-fields"),
    ],
    "get": [
        _CREATE,
        kubectl("get configmaps,deployments,services,pods"),
        kubectl("get pods -o wide"),
        kubectl("get deployments -o wide"),
        kubectl("get services -o wide"),
        kubectl("get pod one -o yaml"),
        kubectl("get configmap settings -o json"),
        kubectl("get all"),
        kubectl("get pods -o name"),
        kubectl("get pods --show-labels"),
        kubectl("get pods -L app"),
        kubectl("get configmaps -l app=web --no-headers"),
        kubectl("get pods --field-selector status.phase=Pending"),
        kubectl("get pods --field-selector status.phase=Running"),
        kubectl("get pods -o", "custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image"),
        kubectl("get pods --sort-by=.metadata.name"),
        kubectl("get pods --chunk-size=1"),
        kubectl("get pod,configmap -o", "jsonpath={range .items[*]}{.kind}/{.metadata.name} {end}"),
        kubectl("get pod none"),
        kubectl("get gremlins"),
        kubectl("get pods none other"),
        kubectl("get pod one --subresource=status -o name"),
        kubectl("get namespace {ns}"),
        kubectl("get --raw /api/v1/namespaces/{ns}/pods/none"),
        kubectl("get po,cm,svc,deploy -o name"),
    ],
    "describe": [
        _CREATE,
        kubectl("describe configmap settings"),
        kubectl("describe pod one"),
        kubectl("describe deployment web"),
        kubectl("describe service web"),
        kubectl("describe namespace {ns}"),
        kubectl("describe pod none"),
        kubectl("describe pods -l app=web"),
    ],
    "edit": [
        kubectl("create -f -", stdin=_MAP),
        kubectl("edit configmap settings", editor="s/colour: red/colour: blue/"),
        kubectl("get configmap settings -o", "jsonpath={.data.colour}"),
        kubectl("edit configmap settings", editor=""),
        kubectl("edit configmap settings -o json", editor='s/"blue"/"green"/'),
        kubectl("edit configmap none", editor=""),
    ],
    "patch": [
        _CREATE,
        kubectl("patch configmap settings -p", '{"data":{"size":"2"}}'),
        kubectl("patch configmap settings --type=merge -p", '{"data":{"size":null}}'),
        kubectl("patch configmap settings --type=json -p", '[{"op":"add","path":"/data/new","value":"x"}]'),
        kubectl(
            "patch deployment web -p", '{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"app:2"}]}}}}'
        ),
        kubectl("patch deployment web --subresource=scale --type=merge -p", '{"spec":{"replicas":3}}'),
        kubectl("patch pod one --subresource=status --type=merge -p", '{"status":{"phase":"Running"}}'),
        kubectl("patch configmap settings -p", "{}"),
        kubectl("patch configmap settings -p", "{"),
        kubectl("patch configmap settings --type=json -p", '[{"op":"remove","path":"/data/none"}]'),
        kubectl("patch configmap none -p", "{}"),
        kubectl("get configmap settings -o", "jsonpath={.data}"),
    ],
    "scale": [
        _CREATE,
        kubectl("scale deployment web --replicas=3"),
        kubectl("get deployment web"),
        kubectl("scale deployment web --replicas=1 --current-replicas=7"),
        kubectl("scale deployment none --replicas=1"),
        kubectl("scale pod one --replicas=2"),
        kubectl("scale deployment web --replicas=-1"),
        kubectl("autoscale deployment web --max=3"),
        kubectl("get hpa"),
    ],
    "label-and-annotate": [
        _CREATE,
        kubectl("label configmap settings tier=front"),
        kubectl("label configmap settings tier=back"),
        kubectl("label configmap settings tier=back --overwrite"),
        kubectl("label configmap settings tier-"),
        kubectl("label configmap settings tier-"),
        kubectl("label configmap settings -bad=1"),
        kubectl("label pods --all seen=yes"),
        kubectl("label configmap settings a=b --dry-run=server"),
        kubectl("annotate configmap settings", "note=hello world"),
        kubectl("annotate configmap settings note=again"),
        kubectl("annotate configmap settings note-"),
        kubectl("annotate pods none a=b"),
    ],
    "delete": [
        _CREATE,
        kubectl("delete configmap settings --dry-run=server"),
        kubectl("delete configmap settings"),
        kubectl("delete configmap settings"),
        kubectl("delete configmap settings --ignore-not-found"),
        kubectl("delete pod -l app=web"),
        kubectl("delete pods --all"),
        kubectl("delete deployment/web service/web"),
        kubectl("delete deployment none --cascade=orphan"),
        kubectl("delete pod one --force --grace-period=0"),
    ],
    "wait": [
        _CREATE,
        kubectl(
            "patch pod one --subresource=status --type=merge -p",
            '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}',
        ),
        kubectl("wait pod/one --for=condition=Ready --timeout=5s"),
        kubectl("wait pod/one --for=jsonpath={.status.phase}=Running --timeout=5s"),
        kubectl("wait pod/one --for=condition=Other --timeout=1s"),
        kubectl("wait pod/none --for=condition=Ready --timeout=1s"),
        kubectl("delete pod one --wait=false"),
        kubectl("wait pod/one --for=delete --timeout=5s"),
    ],
    "explain": [
        kubectl("explain pod"),
        kubectl("explain deployment.spec.strategy"),
        kubectl("explain pod.spec.containers.livenessProbe.httpGet"),
        kubectl("explain configmap.data"),
        kubectl("explain hpa --api-version=autoscaling/v1"),
        kubectl("explain cronjob.spec --recursive"),
        kubectl("explain service.spec.ports.targetPort"),
        kubectl("explain pod.spec.nope"),
        kubectl("explain gremlin"),
        kubectl("explain ingress.spec.rules"),
    ],
    "logs": [
        _CREATE,
        kubectl("logs one"),
        kubectl("logs one -c other"),
        kubectl("logs none"),
        kubectl("logs -l app=none"),
        kubectl("logs deployment/none"),
    ],
    "api-resources": [
        kubectl("api-resources --api-group=apps --cached=false"),
        kubectl("api-resources --api-group=batch -o wide"),
        kubectl("api-resources --api-group= --namespaced=true -o name"),
        kubectl("api-resources --api-group=policy --verbs=list,get"),
    ],
    "auth": [
        kubectl("auth can-i get pods"),
        kubectl("auth can-i * *"),
        kubectl("auth can-i create deployments.apps --namespace {ns}"),
        kubectl("auth can-i get /healthz"),
        kubectl("auth can-i get gremlins"),
    ],
    "rollout": [
        _CREATE,
        kubectl("rollout pause deployment web"),
        kubectl("rollout resume deployment web"),
        kubectl("rollout pause deployment web"),
        kubectl("rollout restart deployment none"),
        kubectl("rollout status deployment none"),
        kubectl(
            "patch deployment web --subresource=status --type=merge -p",
            '{"status":{"observedGeneration":3,"replicas":0,"updatedReplicas":0}}',
        ),
        kubectl("rollout status deployment web --timeout=1s"),
        kubectl("rollout history deployment web"),
        kubectl("rollout status configmap web"),
        kubectl("set image deployment web main=app:9"),
        kubectl("set image deployment web other=app:9"),
        kubectl("set env deployment web A=b"),
        kubectl("set resources deployment web --limits=cpu=1"),
        kubectl("get deployment web -o", "jsonpath={.spec.template.spec.containers}"),
    ],
    "create": [
        kubectl("create configmap plain --from-literal=a=b"),
        kubectl("create secret generic hidden --from-literal=a=b"),
        kubectl("create deployment app --image=app:1 --replicas=0"),
        kubectl("create job once --image=app:1"),
        kubectl("create cronjob often --image=app:1", "--schedule=*/5 * * * *"),
        kubectl("create service clusterip none --tcp=80 --clusterip=None"),
        kubectl("create serviceaccount robot"),
        kubectl("create role reader --verb=get --resource=pods"),
        kubectl("create rolebinding readers --role=reader --user=jane"),
        kubectl("create quota limits --hard=pods=5"),
        kubectl("create poddisruptionbudget safe --selector=app=web --min-available=1"),
        kubectl("create configmap plain --from-literal=a=b"),
        kubectl("create configmap -bad- --from-literal=a=b"),
        kubectl("create deployment app2 --image=app:1 --dry-run=server -o name"),
        kubectl("run single --image=app:1 --restart=Never"),
        kubectl("get jobs,cronjobs,secrets,roles,rolebindings,quota,pdb"),
        kubectl("create -f -", stdin=config_map("spare", {"a": "b"})),
    ],
    "diff": [
        _CREATE,
        kubectl("diff -f -", stdin=_MAP),
        kubectl("diff -f -", stdin={**_MAP, "data": {"colour": "blue", "size": "1"}}),
        kubectl("diff -f -", stdin=config_map("fresh", {"a": "b"})),
        kubectl("diff --server-side --force-conflicts -f -", stdin=_BLUE),
    ],
    "replace": [
        kubectl("create -f -", stdin=_MAP),
        kubectl("replace -f -", stdin={**_MAP, "data": {"only": "this"}}),
        kubectl("get configmap settings -o", "jsonpath={.data}"),
        kubectl("replace -f -", stdin=config_map("none")),
        kubectl("replace -f -", stdin=config_map("settings", {}, resourceVersion="1")),
        kubectl("replace --force -f -", stdin=_MAP),
    ],
    "nodes": [
        kubectl("create -f -", stdin=_NODE),
        kubectl("get node node-{ns}"),
        kubectl("get node node-{ns} -o wide"),
        kubectl("cordon node-{ns}"),
        kubectl("cordon node-{ns}"),
        kubectl("get node node-{ns}"),
        kubectl("uncordon node-{ns}"),
        kubectl("taint node node-{ns} dedicated=me:NoSchedule"),
        kubectl("taint node node-{ns} dedicated=me:NoSchedule"),
        kubectl("taint node node-{ns} dedicated-"),
        kubectl("taint node node-{ns} a=b:Nonsense"),
        kubectl("drain node-{ns} --ignore-daemonsets"),
        kubectl("delete node node-{ns}"),
        kubectl("cordon none"),
    ],
    "custom-resources": [
        kubectl("apply -f -", stdin=_CRD),
        # kubectl wait --for=condition fails while the status has no conditions.
        kubectl(
            "wait crd/lamps.{ns}.example.com --timeout=60s --for",
            """jsonpath={.status.conditions[?(@.type=="Established")].status}=True""",
        ),
        kubectl("apply -f -", stdin=_LAMP),
        kubectl("get lamps"),
        kubectl("get lp desk -o yaml"),
        kubectl("apply -f -", stdin={**_LAMP, "spec": {"watts": 7, "colour": "warm"}}),
        kubectl("apply -f -", stdin={**_LAMP, "spec": {"watts": 0}}),
        kubectl("apply -f -", stdin={**_LAMP, "spec": {"watts": 5, "shade": "x"}}),
        kubectl("patch lamp desk --type=merge -p", '{"spec":{"watts":9}}'),
        kubectl("patch lamp desk -p", '{"spec":{"watts":9}}'),
        kubectl("patch lamp desk --subresource=status --type=merge -p", '{"status":{"on":true}}'),
        kubectl("explain lamp.spec"),
        kubectl("describe lamp desk"),
        kubectl("get crd lamps.{ns}.example.com"),
        kubectl("api-resources --api-group={ns}.example.com"),
        kubectl("apply --server-side -f -", stdin={**_LAMP, "spec": {"watts": 9}}),
        kubectl("delete lamp desk"),
        kubectl("delete crd lamps.{ns}.example.com --wait=false"),
    ],
    "debug": [
        _CREATE,
        kubectl("debug one --image=busybox --container=look --attach=false"),
        kubectl("get pod one -o", "jsonpath={.spec.ephemeralContainers[*].name}"),
        kubectl("expose pod one --port=80 --name=exposed --cluster-ip=None"),
        kubectl("exec one -- ls"),
        kubectl("events"),
        kubectl("top pod"),
    ],
}


def _container(**more: Any) -> str:
    return json.dumps(pod("a", containers=[{"name": "a", "image": "b", **more}]))


def _object(api_version: str, kind: str, **fields: Any) -> str:
    return json.dumps({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, **fields})


_JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}}
#: Rejected manifests; kubectl's message for each must be the same.
BROKEN: dict[str, str] = {
    "not-yaml": "a: b: c",
    "no-kind": "apiVersion: v1\nmetadata:\n  name: a\n",
    "no-version": "kind: ConfigMap\nmetadata:\n  name: a\n",
    "no-name": "apiVersion: v1\nkind: ConfigMap\n",
    "unknown-kind": "apiVersion: v1\nkind: Gremlin\nmetadata:\n  name: a\n",
    "unknown-group": "apiVersion: no.such.group/v1\nkind: Thing\nmetadata:\n  name: a\n",
    "old-version": "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata:\n  name: a\n",
    "unknown-field": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ncolour: blue\n",
    "unknown-nested-field": (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"
        "spec:\n  containers:\n  - name: a\n    image: b\n    colour: blue\n"
    ),
    "duplicate-field": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n  k: w\n",
    "number-for-text": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: 1\n",
    "text-for-number": "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: a\nspec:\n  replicas: three\n",
    "list-for-object": "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec: []\n",
    "object-for-list": "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers: {}\n",
    "bool-for-text": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n    on: true\n",
    "bad-name": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: Not_A_Name\n",
    "bad-label": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n    a: -b-\n",
    "no-containers": "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers: []\n",
    "no-image": "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - name: a\n",
    "selector-does-not-match": json.dumps(deployment("a", selector={"matchLabels": {"x": "y"}})),
    "bad-quantity": _container(resources={"limits": {"cpu": "lots"}}),
    "bad-port": _container(ports=[{"containerPort": 99999}]),
    "bad-probe": _container(readinessProbe={}),
    "bad-restart-policy": json.dumps(pod("a", restartPolicy="Sometimes")),
    "mount-without-volume": _container(volumeMounts=[{"name": "x", "mountPath": "/x"}]),
    "two-documents-one-broken": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: fine\n---\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: Not_Fine\n"
    ),
    "other-namespace": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: elsewhere\n",
    "empty": "",
    "only-comments": "# nothing here\n",
    "tab": "apiVersion: v1\n\tkind: ConfigMap\n",
    "service-without-ports": "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec: {}\n",
    "cron-schedule": _object("batch/v1", "CronJob", spec={"schedule": "never", "jobTemplate": {"spec": _JOB}}),
    "definition-without-schema": json.dumps(
        definition("as", "A", {"name": "v1", "served": True, "storage": True}, group="example.com")
    ),
    "webhook-without-side-effects": _object(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        webhooks=[{"name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1/"}}],
    ),
}
