"""Admission webhooks: what they receive, in which order, the effects of their answers, and invalid answers."""

from typing import Any

from tests.conformance.steps import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    MERGE_PATCH,
    PODS,
    Call,
    Case,
    Hooks,
    apply,
    config_map,
    delete,
    deployment,
    get,
    patch,
    pod,
    post,
    prepared,
    put,
    quiet,
)

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_MUTATING = f"{REGISTRATION}/mutatingwebhookconfigurations"
_VALIDATING = f"{REGISTRATION}/validatingwebhookconfigurations"
OBJECT = f"{CONFIG_MAPS}/a"
A = config_map("a", {"k": "v"})
_MANAGED = ("metadata.managedFields", "metadata.labels", "data", "code", "message")
ANSWER = ("code", "reason", "message", "details", "metadata.labels", "data", "status")
HERE = {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}}


def rule(resources: str = "configmaps", *operations: str, group: str = "", **more: Any) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": [resources],
        "operations": list(operations) or ["*"],
        **more,
    }


def hook(behaviour: str, *rules: dict[str, Any], name: str = "one", url: str = "", **more: Any) -> dict[str, Any]:
    """A webhook for ConfigMaps of the case's namespace, unless rules are given."""
    return {
        "name": f"{name}.example.com",
        "clientConfig": {"url": url or f"${{hooks}}/{behaviour}", "caBundle": "${ca}"},
        "rules": list(rules) or [rule()],
        "namespaceSelector": HERE,
        "objectSelector": {"matchExpressions": [{"key": "probe", "operator": "DoesNotExist"}]},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
        **more,
    }


def _configuration(kind: str, hooks: tuple[dict[str, Any], ...], name: str) -> dict[str, Any]:
    probe = hook(
        "deny/probe", rule("configmaps", "CREATE"), name="zz-probe", objectSelector={"matchLabels": {"probe": name}}
    )
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": f"{name}-{{ns}}"},
        "webhooks": [*hooks, probe],
    }


def _in_effect(name: str) -> Call:
    """Repeat a request until the configuration has taken effect: a real server learns of it later."""
    probe = config_map("probe", labels={"probe": name})
    return post(CONFIG_MAPS, probe, query={"dryRun": "All"}, until=lambda status, _: status != 201, keep=("code",))


def validating(*hooks: dict[str, Any], name: str = "a") -> list[Call]:
    return [quiet(post(_VALIDATING, _configuration("Validating", hooks, name))), _in_effect(name)]


def mutating(*hooks: dict[str, Any], name: str = "a") -> list[Call]:
    return [quiet(post(_MUTATING, _configuration("Mutating", hooks, name))), _in_effect(name)]


def created(id: str, *configurations: Call, body: Any = None, **more: Any) -> Case:
    return Case(id, *configurations, post(CONFIG_MAPS, body or A, keep=ANSWER, **more))


def _asks(
    id: str,
    hooks: list[Call],
    *calls: Call,
    keep: tuple[str, ...] = ("path", "request.operation", "request.name"),
    distinct: bool = False,
) -> Case:
    """Return the reviews that webhooks received during the calls."""
    return Case(id, *hooks, *calls, Hooks(keep, distinct))


def _quietly(call: Call) -> Call:
    return Call(call.method, call.path, call.body, call.query, call.headers, keep=("code", "message"))


_BEHAVIOURS = (
    "allow",
    "deny",
    "deny-silently",
    "deny-code",
    "deny-reason",
    "deny-details",
    "deny-odd-code",
    "warn",
    "deny-and-warn",
)
_NONSENSE = (
    "nonsense", "empty", "empty-object", "error", "not-found", "no-response", "wrong-kind", "wrong-version",
    "other-version", "wrong-uid", "drop",
)  # fmt: skip
_PATCHES = (
    "patch-missing", "patch-test-fails", "patch-nonsense", "patch-no-type", "patch-merge-type", "patch-empty",
    "patch-base64", "patch-name", "patch-wrong-type", "patch-unknown-field", "patch-data", "patch-and-deny",
)  # fmt: skip
_WHOLE = ("apiVersion", "kind", "path", "request")
_MATCH: dict[str, str] = {
    "name": "object.metadata.name == 'a'",
    "other-name": "object.metadata.name == 'b'",
    "label": "has(object.metadata.labels) && 'x' in object.metadata.labels",
    "data": "has(object.data) && object.data.k == 'v'",
    "user": "request.userInfo.username.startsWith('system:')",
    "operation": "request.operation == 'CREATE'",
    "resource": "request.resource.resource == 'configmaps' && request.resource.group == ''",
    "namespace": "request.namespace == object.metadata.namespace",
    "groups": "request.userInfo.groups.exists(g, g == 'system:masters')",
    "dry-run": "!request.dryRun",
    "old-object": "oldObject == null",
    "size": "size(object.data) > 1",
    "list": "['a', 'b'].exists(n, n == object.metadata.name)",
    "missing-field": "object.spec.nope == 1",
    "error": "object.data.nope == 'x'",
    "lower": "object.metadata.name.lowerAscii() == 'a'",
    "matches": "object.metadata.name.matches('^a$')",
    "ternary": "(has(object.immutable) ? object.immutable : true) == true",
    "optional": "object.?metadata.?labels.hasValue()",
}
_BAD_CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "name": hook("allow", name="bad_name"),
    "unqualified-name": hook("allow") | {"name": "short"},
    "no-side-effects": {key: value for key, value in hook("allow").items() if key != "sideEffects"},
    "odd-side-effects": hook("allow", sideEffects="Some"),
    "unknown-side-effects": hook("allow", sideEffects="Perhaps"),
    "no-versions": hook("allow", admissionReviewVersions=[]),
    "odd-versions": hook("allow", admissionReviewVersions=["v9"]),
    "twice-versions": hook("allow", admissionReviewVersions=["v1", "v1"]),
    "timeout-long": hook("allow", timeoutSeconds=31),
    "timeout-zero": hook("allow", timeoutSeconds=0),
    "failure-policy": hook("allow", failurePolicy="Panic"),
    "match-policy": hook("allow", matchPolicy="Roughly"),
    "http": hook("allow", url="http://127.0.0.1/x"),
    "url-query-is-fine": hook("allow", url="https://127.0.0.1:1/x?y=z"),
    "url-fragment": hook("allow", url="https://127.0.0.1/x#y"),
    "url-user": hook("allow", url="https://me@127.0.0.1/x"),
    "url-nonsense": hook("allow", url=":"),
    "no-client": hook("allow", clientConfig={}),
    "both-clients": hook(
        "allow", clientConfig={"url": "https://127.0.0.1/x", "service": {"namespace": "a", "name": "b"}}
    ),
    "service-without-name": hook("allow", clientConfig={"service": {"namespace": "a"}}),
    "service-path": hook("allow", clientConfig={"service": {"namespace": "a", "name": "b", "path": "x"}}),
    "service-port": hook("allow", clientConfig={"service": {"namespace": "a", "name": "b", "port": 0}}),
    "bundle": hook("allow", clientConfig={"url": "https://127.0.0.1/x", "caBundle": "bm90IGEgY2VydA=="}),
    "no-operations": hook("allow", {**rule(), "operations": []}),
    "odd-operation": hook("allow", rule("configmaps", "READ")),
    "star-and-more": hook("allow", rule("configmaps", "*", "CREATE")),
    "no-resources": hook("allow", {**rule(), "resources": []}),
    "overlapping-resources": hook("allow", {**rule(), "resources": ["*", "pods"]}),
    "odd-resource": hook("allow", rule("pods/*/x")),
    "odd-scope": hook("allow", rule(scope="Everywhere")),
    "selector": hook("allow", objectSelector={"matchExpressions": [{"key": "a", "operator": "Near"}]}),
    "condition-syntax": hook("allow", matchConditions=[{"name": "a", "expression": "object."}]),
    "condition-type": hook("allow", matchConditions=[{"name": "a", "expression": "1 + 1"}]),
    "condition-variable": hook("allow", matchConditions=[{"name": "a", "expression": "nothing == 1"}]),
    "condition-name": hook("allow", matchConditions=[{"name": "a b", "expression": "true"}]),
    "condition-twice": hook(
        "allow", matchConditions=[{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]
    ),
    "condition-empty": hook("allow", matchConditions=[{"name": "a", "expression": ""}]),
}


def _label_hook(name: str, **more: Any) -> dict[str, Any]:
    return hook("labels", name=name, url=f"${{hooks}}/labels/{name}", **more)


CASES = [
    *(created(f"validating-{behaviour}", *validating(hook(behaviour))) for behaviour in _BEHAVIOURS),
    *(created(f"mutating-{behaviour}", *mutating(hook(behaviour))) for behaviour in _BEHAVIOURS),
    *(created(f"validating-{behaviour}", *validating(hook(behaviour))) for behaviour in _NONSENSE),
    *(created(f"mutating-{behaviour}", *mutating(hook(behaviour))) for behaviour in _NONSENSE),
    *(created(f"ignored-{behaviour}", *validating(hook(behaviour, failurePolicy="Ignore"))) for behaviour in _NONSENSE),
    *(created(f"mutating-{behaviour}", *mutating(hook(behaviour))) for behaviour in _PATCHES),
    *(created(f"ignored-{behaviour}", *mutating(hook(behaviour, failurePolicy="Ignore"))) for behaviour in _PATCHES),
    created("validating-patch-is-no-use", *validating(hook("patch-data"))),
    created("mutating-patch-without-data", *mutating(hook("patch-no-type")), body=config_map("a")),
    created("down", *validating(hook("", url="https://127.0.0.1:1/x"))),
    created("down-ignored", *validating(hook("", url="https://127.0.0.1:1/x", failurePolicy="Ignore"))),
    created("mutating-down", *mutating(hook("", url="https://127.0.0.1:1/x"))),
    created("slow", *validating(hook("slow", timeoutSeconds=1))),
    created("slow-ignored", *validating(hook("slow", timeoutSeconds=1, failurePolicy="Ignore"))),
    created("slow-mutating", *mutating(hook("slow", timeoutSeconds=1))),
    created("slow-within-its-time", *validating(hook("slow", timeoutSeconds=4))),
    created("untrusted", *validating(hook("allow", clientConfig={"url": "${hooks}/allow"}))),
    created(
        "service-missing",
        *validating(
            hook("allow", clientConfig={"service": {"namespace": "{ns}", "name": "none"}, "caBundle": "${ca}"})
        ),
    ),
    # Requests.
    _asks("review-of-a-create", validating(hook("allow")), quiet(post(CONFIG_MAPS, A)), keep=_WHOLE),
    _asks(
        "review-of-an-update",
        validating(hook("allow", rule("configmaps", "UPDATE"))),
        quiet(post(CONFIG_MAPS, A)),
        quiet(put(OBJECT, config_map("a", {"k": "w"}))),
        keep=_WHOLE,
    ),
    _asks(
        "review-of-a-patch",
        validating(hook("allow", rule("configmaps", "UPDATE"))),
        quiet(post(CONFIG_MAPS, A)),
        quiet(patch(MERGE_PATCH, OBJECT, {"data": {"k": "w"}}, query={"fieldManager": "me"})),
        keep=_WHOLE,
    ),
    _asks(
        "review-of-a-delete",
        validating(hook("allow", rule("configmaps", "DELETE"))),
        quiet(post(CONFIG_MAPS, A)),
        quiet(delete(OBJECT)),
        keep=_WHOLE,
    ),
    _asks(
        "review-of-a-dry-run",
        validating(hook("allow")),
        quiet(post(CONFIG_MAPS, A, query={"dryRun": "All"})),
        keep=("request.dryRun", "request.options"),
    ),
    _asks(
        "review-of-a-generated-name",
        validating(hook("allow")),
        quiet(post(CONFIG_MAPS, {"metadata": {"generateName": "gen-"}})),
        keep=("request.name", "request.object.metadata.generateName"),
    ),
    _asks(
        "review-of-a-generated-name-mutating",
        mutating(hook("allow")),
        quiet(post(CONFIG_MAPS, {"metadata": {"generateName": "gen-"}})),
        keep=("request.name", "request.object.metadata.generateName"),
    ),
    _asks(
        "review-of-an-eviction",
        validating(hook("allow", rule("pods/eviction"))),
        quiet(post(PODS, pod("a"))),
        quiet(post(f"{PODS}/a/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}})),
        keep=_WHOLE,
    ),
    _asks(
        "review-of-a-scale",
        validating(hook("allow", rule("deployments/scale", group="apps"))),
        quiet(post(DEPLOYMENTS, deployment("a"))),
        quiet(patch(MERGE_PATCH, f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 2}})),
        keep=(
            "request.kind",
            "request.resource",
            "request.subResource",
            "request.requestKind",
            "request.object.spec",
            "request.oldObject.spec",
            "request.name",
        ),
        distinct=True,
    ),
    _asks(
        "review-of-a-binding",
        validating(hook("allow", rule("pods/binding"))),
        quiet(post(PODS, pod("a"))),
        quiet(
            post(
                f"{PODS}/a/binding",
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": "a"},
                    "target": {"kind": "Node", "name": "n"},
                },
            )
        ),
        keep=("request.kind", "request.subResource", "request.operation", "request.object", "request.name"),
    ),
    _asks(
        "review-of-a-status",
        validating(hook("allow", rule("pods/status"))),
        quiet(post(PODS, pod("a"))),
        quiet(patch(MERGE_PATCH, f"{PODS}/a/status", {"status": {"phase": "Running"}})),
        keep=(
            "request.kind",
            "request.resource",
            "request.subResource",
            "request.operation",
            "request.object.status.phase",
            "request.oldObject.status.phase",
        ),
    ),
    _asks(
        "review-of-finalizers",
        validating(hook("allow", rule("configmaps", "UPDATE", "DELETE"))),
        quiet(post(CONFIG_MAPS, config_map("a", finalizers=["example.com/hold"]))),
        quiet(delete(OBJECT)),
        quiet(patch(MERGE_PATCH, OBJECT, {"metadata": {"finalizers": None}})),
        keep=("request.operation", "request.object.metadata.finalizers", "request.oldObject.metadata.finalizers"),
    ),
    _asks(
        "review-of-a-collection-deletion",
        validating(hook("allow", rule("configmaps", "DELETE"))),
        quiet(post(CONFIG_MAPS, config_map("a", labels={"x": "1"}))),
        quiet(post(CONFIG_MAPS, config_map("b", labels={"x": "1"}))),
        quiet(delete(CONFIG_MAPS, query={"labelSelector": "x"})),
        keep=("request.operation", "request.name", "request.oldObject.metadata.name"),
    ),
    _asks(
        "review-of-an-apply",
        validating(hook("allow")),
        quiet(
            Call(
                "PATCH",
                OBJECT,
                config_map("a", {"k": "v"}) | {"apiVersion": "v1"},
                query={"fieldManager": "me"},
                headers={"Content-Type": "application/apply-patch+yaml"},
            )
        ),
        keep=("request.operation", "request.options", "request.oldObject", "request.name"),
    ),
    _asks(
        "review-of-a-deployment",
        validating(hook("allow", rule("deployments", group="apps"))),
        quiet(post(DEPLOYMENTS, deployment("a"))),
        keep=("request.kind", "request.requestResource", "request.object.spec", "request.object.kind"),
    ),
    # Which webhooks are called, and when.
    _asks(
        "all-operations",
        validating(hook("allow")),
        quiet(post(CONFIG_MAPS, A)),
        quiet(put(OBJECT, config_map("a"))),
        quiet(delete(OBJECT)),
    ),
    _asks(
        "some-operations",
        validating(hook("allow", rule("configmaps", "CREATE", "DELETE"))),
        quiet(post(CONFIG_MAPS, A)),
        quiet(put(OBJECT, config_map("a"))),
        quiet(delete(OBJECT)),
    ),
    _asks(
        "not-when-reading",
        validating(hook("allow")),
        quiet(post(CONFIG_MAPS, A)),
        quiet(get(OBJECT)),
        quiet(get(CONFIG_MAPS)),
    ),
    _asks(
        "unchanged-update",
        validating(hook("allow", rule("configmaps", "UPDATE"))),
        quiet(post(CONFIG_MAPS, A)),
        quiet(patch(MERGE_PATCH, OBJECT, {})),
    ),
    _asks("invalid-object", validating(hook("allow")), _quietly(post(CONFIG_MAPS, config_map("A_")))),
    _asks("invalid-object-mutating", mutating(hook("allow")), _quietly(post(CONFIG_MAPS, config_map("A_")))),
    _asks("existing-object", validating(hook("allow")), quiet(post(CONFIG_MAPS, A)), _quietly(post(CONFIG_MAPS, A))),
    _asks(
        "missing-object",
        validating(hook("allow")),
        _quietly(delete(OBJECT)),
        _quietly(put(OBJECT, A)),
        _quietly(patch(MERGE_PATCH, OBJECT, {})),
    ),
    _asks(
        "stale-update",
        validating(hook("allow", rule("configmaps", "UPDATE"))),
        quiet(post(CONFIG_MAPS, A)),
        _quietly(put(OBJECT, config_map("a", {}, resourceVersion="1"))),
    ),
    _asks(
        "subresources-apart",
        validating(hook("allow", rule("pods"))),
        quiet(post(PODS, pod("a"))),
        quiet(patch(MERGE_PATCH, f"{PODS}/a/status", {"status": {"phase": "Running"}})),
    ),
    _asks(
        "all-subresources",
        validating(hook("allow", rule("pods/*"))),
        quiet(post(PODS, pod("a"))),
        quiet(patch(MERGE_PATCH, f"{PODS}/a/status", {"status": {"phase": "Running"}})),
        keep=("request.subResource", "request.operation"),
    ),
    _asks("scope-of-clusters", validating(hook("allow", rule(scope="Cluster"))), quiet(post(CONFIG_MAPS, A))),
    _asks("scope-of-namespaces", validating(hook("allow", rule(scope="Namespaced"))), quiet(post(CONFIG_MAPS, A))),
    _asks("other-group", validating(hook("allow", rule("deployments"))), quiet(post(DEPLOYMENTS, deployment("a")))),
    _asks(
        "equivalent-version",
        validating(hook("allow", rule("horizontalpodautoscalers", group="autoscaling"))),
        quiet(
            post(
                "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
                {
                    "metadata": {"name": "a"},
                    "spec": {
                        "maxReplicas": 2,
                        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                    },
                },
            )
        ),
        keep=("request.kind", "request.requestKind", "request.object.apiVersion"),
    ),
    _asks(
        "exact-version",
        validating(hook("allow", rule("horizontalpodautoscalers", group="autoscaling"), matchPolicy="Exact")),
        quiet(
            post(
                "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
                {
                    "metadata": {"name": "a"},
                    "spec": {
                        "maxReplicas": 2,
                        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                    },
                },
            )
        ),
        keep=("request.kind",),
    ),
    _asks(
        "object-selector",
        validating(hook("allow", objectSelector={"matchLabels": {"x": "1"}})),
        quiet(post(CONFIG_MAPS, config_map("a", labels={"x": "1"}))),
        quiet(post(CONFIG_MAPS, config_map("b"))),
        quiet(patch(MERGE_PATCH, OBJECT, {"metadata": {"labels": {"x": "2"}}})),
        quiet(delete(OBJECT)),
    ),
    _asks(
        "namespace-selector",
        validating(hook("allow", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}})),
        quiet(post(CONFIG_MAPS, A)),
    ),
    _asks(
        "namespace-itself",
        validating(hook("allow", rule("namespaces", "UPDATE"))),
        quiet(patch(MERGE_PATCH, "/api/v1/namespaces/{ns}", {"metadata": {"labels": {"x": "1"}}})),
        keep=("request.name", "request.namespace", "request.operation"),
    ),
    *(
        _asks(
            f"condition-{id}",
            validating(hook("deny", matchConditions=[{"name": "c", "expression": expression}])),
            post(CONFIG_MAPS, A, keep=ANSWER),
        )
        for id, expression in _MATCH.items()
    ),
    created(
        "condition-error-ignored",
        *validating(
            hook("deny", failurePolicy="Ignore", matchConditions=[{"name": "c", "expression": _MATCH["error"]}])
        ),
    ),
    created(
        "conditions-one-false-one-broken",
        *validating(
            hook(
                "deny",
                matchConditions=[{"name": "c", "expression": _MATCH["error"]}, {"name": "d", "expression": "false"}],
            )
        ),
    ),
    created(
        "conditions-all-true",
        *validating(
            hook("deny", matchConditions=[{"name": "c", "expression": "true"}, {"name": "d", "expression": "true"}])
        ),
    ),
    # Order.
    Case(
        "mutating-in-turn",
        *mutating(_label_hook("b"), _label_hook("a")),
        post(CONFIG_MAPS, config_map("a", labels={"z": "0"}), keep=ANSWER),
        Hooks(("path",)),
    ),
    Case(
        "configurations-by-name",
        *mutating(_label_hook("second"), name="b"),
        *mutating(_label_hook("first"), name="a"),
        post(CONFIG_MAPS, config_map("a"), keep=ANSWER),
        Hooks(("path",)),
    ),
    Case(
        "mutating-before-validating",
        *validating(hook("allow")),
        *mutating(_label_hook("m"), name="m"),
        quiet(post(CONFIG_MAPS, config_map("a"))),
        Hooks(("path", "request.object.metadata.labels")),
    ),
    Case(
        "mutating-stops-at-a-refusal",
        *mutating(hook("deny"), _label_hook("late")),
        post(CONFIG_MAPS, config_map("a"), keep=ANSWER),
        Hooks(("path",)),
    ),
    Case(
        "validating-of-two-refusals",
        *validating(hook("deny"), hook("deny-reason", name="two")),
        post(CONFIG_MAPS, config_map("a"), keep=("code",)),
    ),
    Case(
        "reinvoked",
        *mutating(_label_hook("first", reinvocationPolicy="IfNeeded"), _label_hook("second")),
        post(CONFIG_MAPS, config_map("a"), keep=ANSWER),
        Hooks(("path", "request.object.metadata.labels")),
    ),
    Case(
        "not-reinvoked-when-nothing-changed",
        *mutating(_label_hook("first", reinvocationPolicy="IfNeeded"), hook("allow", name="second")),
        post(CONFIG_MAPS, config_map("a"), keep=ANSWER),
        Hooks(("path",)),
    ),
    Case(
        "defaults-before-mutating",
        *mutating(hook("allow", rule("pods"))),
        quiet(post(PODS, pod("a"))),
        Hooks(
            (
                "request.object.spec.containers.0.terminationMessagePath",
                "request.object.spec.restartPolicy",
                "request.object.status",
                "request.object.metadata.uid",
                "request.object.metadata.managedFields",
            )
        ),
    ),
    # Once there are no managers, none are recorded until the next apply.
    Case(
        "managed-fields-taken-away",
        *mutating(hook("patch-untracked", rule("configmaps", "CREATE"))),
        post(CONFIG_MAPS, A, managed=True, keep=_MANAGED),
        patch(MERGE_PATCH, OBJECT, {"data": {"k": "w"}}, managed=True, keep=_MANAGED),
        put(OBJECT, config_map("a", {"k": "x"}), managed=True, keep=_MANAGED),
        apply(OBJECT, config_map("a", {"k": "y"}), managed=True, keep=_MANAGED),
        apply(OBJECT, config_map("a", {"l": "y"}), managed=True, keep=_MANAGED),
        patch(MERGE_PATCH, OBJECT, {"data": {"k": "z"}}, managed=True, keep=_MANAGED),
    ),
    Case(
        "managed-fields-of-a-pod-taken-away",
        *mutating(hook("patch-untracked", rule("pods", "CREATE"))),
        post(PODS, pod("a"), managed=True, keep=_MANAGED),
        patch(MERGE_PATCH, f"{PODS}/a/status", {"status": {"message": "m"}}, managed=True, keep=_MANAGED),
        patch(MERGE_PATCH, f"{PODS}/a", {"metadata": {"labels": {"x": "1"}}}, managed=True, keep=_MANAGED),
        apply(
            f"{PODS}/a",
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"y": "1"}}},
            managed=True,
            keep=("metadata.labels", "metadata.managedFields.*.manager", "metadata.managedFields.*.operation"),
        ),
    ),
    Case(
        "validated-after-mutating", *mutating(hook("patch-wrong-type")), post(CONFIG_MAPS, config_map("a"), keep=ANSWER)
    ),
    Case(
        "own-configurations-are-not-asked-about",
        *validating(hook("deny", rule("*", group="admissionregistration.k8s.io"), namespaceSelector={})),
        quiet(patch(MERGE_PATCH, f"{_VALIDATING}/a-{{ns}}", {"metadata": {"labels": {"x": "1"}}})),
        Hooks(("path",)),
    ),
    # Dry run and side effects.
    created("dry-run", *validating(hook("allow")), query={"dryRun": "All"}),
    created("dry-run-on-dry-run", *validating(hook("allow", sideEffects="NoneOnDryRun")), query={"dryRun": "All"}),
    created("delete-denied", *validating(hook("deny", rule("configmaps", "DELETE"))), body=config_map("a")),
    Case(
        "delete-is-denied",
        *prepared(CONFIG_MAPS, A),
        *validating(hook("deny", rule("configmaps", "DELETE"))),
        delete(OBJECT),
        get(OBJECT, keep=("metadata.deletionTimestamp",)),
        delete(CONFIG_MAPS, query={"labelSelector": "!x", "fieldSelector": "metadata.name=a"}),
    ),
    Case(
        "update-is-denied",
        *prepared(CONFIG_MAPS, A),
        *validating(hook("deny", rule("configmaps", "UPDATE"))),
        put(OBJECT, config_map("a"), keep=ANSWER),
        patch(MERGE_PATCH, OBJECT, {"data": {"k": "w"}}, keep=ANSWER),
    ),
    Case(
        "eviction-is-denied",
        *prepared(PODS, pod("a")),
        *validating(hook("deny", rule("pods/eviction"))),
        post(f"{PODS}/a/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}),
    ),
    Case(
        "configuration-removed",
        *validating(hook("deny")),
        quiet(delete(f"{_VALIDATING}/a-{{ns}}")),
        post(CONFIG_MAPS, A, until=lambda status, _: status == 201, keep=("kind",)),
    ),
    # Configurations.
    Case(
        "defaults-validating",
        post(
            _VALIDATING,
            {
                "metadata": {"name": "d-{ns}"},
                "webhooks": [
                    {
                        "name": "a.example.com",
                        "clientConfig": {"service": {"namespace": "a", "name": "b"}},
                        "rules": [
                            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["none"], "operations": ["CREATE"]}
                        ],
                        "sideEffects": "None",
                        "admissionReviewVersions": ["v1"],
                    }
                ],
            },
        ),
    ),
    Case(
        "defaults-mutating",
        post(
            _MUTATING,
            {
                "metadata": {"name": "d-{ns}"},
                "webhooks": [
                    {
                        "name": "a.example.com",
                        "clientConfig": {"url": "https://127.0.0.1/x"},
                        "rules": [
                            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["none"], "operations": ["CREATE"]}
                        ],
                        "sideEffects": "None",
                        "admissionReviewVersions": ["v1"],
                    }
                ],
            },
        ),
    ),
    Case(
        "generation",
        quiet(post(_VALIDATING, _configuration("Validating", (hook("allow"),), "g"))),
        patch(
            MERGE_PATCH, f"{_VALIDATING}/g-{{ns}}", {"metadata": {"labels": {"a": "b"}}}, keep=["metadata.generation"]
        ),
        patch(MERGE_PATCH, f"{_VALIDATING}/g-{{ns}}", {"webhooks": []}, keep=["metadata.generation"]),
    ),
    *(
        Case(
            f"bad-{id}",
            post(
                _VALIDATING,
                {"metadata": {"name": "bad-{ns}"}, "webhooks": [bad]},
                keep=("code", "reason", "message", "details.causes"),
            ),
        )
        for id, bad in _BAD_CONFIGURATIONS.items()
    ),
    Case(
        "bad-mutating-reinvocation",
        post(
            _MUTATING,
            {"metadata": {"name": "bad-{ns}"}, "webhooks": [hook("allow", reinvocationPolicy="Always")]},
            keep=("code", "message"),
        ),
    ),
    Case(
        "bad-same-names",
        post(
            _MUTATING,
            {"metadata": {"name": "bad-{ns}"}, "webhooks": [hook("allow"), hook("deny")]},
            keep=("code", "message"),
        ),
    ),
]
