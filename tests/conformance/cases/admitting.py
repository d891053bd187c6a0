"""Admission webhooks: what they receive, in which order, the effects of their answers, and invalid answers."""

from typing import Any

from tests.conformance.steps import (
    CONFIG_MAP,
    CONFIG_MAPS,
    DEPLOYMENT,
    DEPLOYMENTS,
    NAMESPACE,
    POD,
    PODS,
    Call,
    Case,
    Hooks,
    apply,
    config_map,
    delete,
    deployment,
    get,
    merge,
    pod,
    post,
    prepared,
    put,
    quiet,
)

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_MUTATING = f"{REGISTRATION}/mutatingwebhookconfigurations"
_VALIDATING = f"{REGISTRATION}/validatingwebhookconfigurations"
A = config_map("a", {"k": "v"})
_MANAGED: Any = {
    "managed": True,
    "keep": ("metadata.managedFields", "metadata.labels", "data", "code", "message"),
}
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


def allowing(resources: str, *operations: str, **more: Any) -> list[Call]:
    """A validating webhook for these resources that allows everything."""
    return validating(hook("allow", rule(resources, *operations, **more)))


MADE = quiet(post(CONFIG_MAPS, A))
_MADE_POD = quiet(post(PODS, pod("a")))
_MADE_DEPLOYMENT = quiet(post(DEPLOYMENTS, deployment("a")))
_ALLOWED = validating(hook("allow"))


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


def _whole(id: str, hooks: list[Call], *calls: Call) -> Case:
    return _asks(id, hooks, *calls, keep=("apiVersion", "kind", "path", "request"))


def _ordered(id: str, *hooks: Call, keep: tuple[str, ...] = ("path",), **metadata: Any) -> Case:
    """Return the answer to a create, and the webhooks that were called."""
    return Case(id, *hooks, post(CONFIG_MAPS, config_map("a", **metadata), keep=ANSWER), Hooks(keep))


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
_RUNNING = merge(f"{POD}/status", {"status": {"phase": "Running"}})
_EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
_BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
_AUTOSCALERS = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers"
_AUTOSCALER = {
    "metadata": {"name": "a"},
    "spec": {"maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}},
}
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


def _of_request(fields: str) -> tuple[str, ...]:
    return tuple(f"request.{one}" for one in fields.split())


def _conditional(*expressions: str, **more: Any) -> dict[str, Any]:
    conditions = [{"name": name, "expression": one} for name, one in zip("cd", expressions, strict=False)]
    return hook("deny", matchConditions=conditions, **more)


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
    _whole("review-of-a-create", _ALLOWED, MADE),
    _whole(
        "review-of-an-update",
        allowing("configmaps", "UPDATE"),
        MADE,
        quiet(put(CONFIG_MAP, config_map("a", {"k": "w"}))),
    ),
    _whole(
        "review-of-a-patch",
        allowing("configmaps", "UPDATE"),
        MADE,
        quiet(merge(CONFIG_MAP, {"data": {"k": "w"}}, query={"fieldManager": "me"})),
    ),
    _whole("review-of-a-delete", allowing("configmaps", "DELETE"), MADE, quiet(delete(CONFIG_MAP))),
    _asks(
        "review-of-a-dry-run",
        _ALLOWED,
        quiet(post(CONFIG_MAPS, A, query={"dryRun": "All"})),
        keep=("request.dryRun", "request.options"),
    ),
    *(
        _asks(
            f"review-of-a-generated-name{suffix}",
            registered(hook("allow")),
            quiet(post(CONFIG_MAPS, {"metadata": {"generateName": "gen-"}})),
            keep=("request.name", "request.object.metadata.generateName"),
        )
        for suffix, registered in (("", validating), ("-mutating", mutating))
    ),
    _whole("review-of-an-eviction", allowing("pods/eviction"), _MADE_POD, quiet(post(f"{POD}/eviction", _EVICTION))),
    _asks(
        "review-of-a-scale",
        allowing("deployments/scale", group="apps"),
        _MADE_DEPLOYMENT,
        quiet(merge(f"{DEPLOYMENT}/scale", {"spec": {"replicas": 2}})),
        keep=_of_request("kind resource subResource requestKind object.spec oldObject.spec name"),
        distinct=True,
    ),
    _asks(
        "review-of-a-binding",
        allowing("pods/binding"),
        _MADE_POD,
        quiet(post(f"{POD}/binding", _BINDING)),
        keep=_of_request("kind subResource operation object name"),
    ),
    _asks(
        "review-of-a-status",
        allowing("pods/status"),
        _MADE_POD,
        quiet(_RUNNING),
        keep=_of_request("kind resource subResource operation object.status.phase oldObject.status.phase"),
    ),
    _asks(
        "review-of-finalizers",
        allowing("configmaps", "UPDATE", "DELETE"),
        quiet(post(CONFIG_MAPS, config_map("a", finalizers=["example.com/hold"]))),
        quiet(delete(CONFIG_MAP)),
        quiet(merge(CONFIG_MAP, {"metadata": {"finalizers": None}})),
        keep=_of_request("operation object.metadata.finalizers oldObject.metadata.finalizers"),
    ),
    _asks(
        "review-of-a-collection-deletion",
        allowing("configmaps", "DELETE"),
        quiet(post(CONFIG_MAPS, config_map("a", labels={"x": "1"}))),
        quiet(post(CONFIG_MAPS, config_map("b", labels={"x": "1"}))),
        quiet(delete(CONFIG_MAPS, query={"labelSelector": "x"})),
        keep=_of_request("operation name oldObject.metadata.name"),
    ),
    _asks(
        "review-of-an-apply",
        _ALLOWED,
        quiet(apply(CONFIG_MAP, A, manager="me")),
        keep=_of_request("operation options oldObject name"),
    ),
    _asks(
        "review-of-a-deployment",
        allowing("deployments", group="apps"),
        _MADE_DEPLOYMENT,
        keep=_of_request("kind requestResource object.spec object.kind"),
    ),
    # Which webhooks are called, and when.
    *(
        _asks(id, hooks, MADE, quiet(put(CONFIG_MAP, config_map("a"))), quiet(delete(CONFIG_MAP)))
        for id, hooks in (("all-operations", _ALLOWED), ("some-operations", allowing("configmaps", "CREATE", "DELETE")))
    ),
    _asks("not-when-reading", _ALLOWED, MADE, quiet(get(CONFIG_MAP)), quiet(get(CONFIG_MAPS))),
    _asks("unchanged-update", allowing("configmaps", "UPDATE"), MADE, quiet(merge(CONFIG_MAP, {}))),
    _asks("invalid-object", _ALLOWED, _quietly(post(CONFIG_MAPS, config_map("A_")))),
    _asks("invalid-object-mutating", mutating(hook("allow")), _quietly(post(CONFIG_MAPS, config_map("A_")))),
    _asks("existing-object", _ALLOWED, MADE, _quietly(post(CONFIG_MAPS, A))),
    _asks(
        "missing-object",
        _ALLOWED,
        _quietly(delete(CONFIG_MAP)),
        _quietly(put(CONFIG_MAP, A)),
        _quietly(merge(CONFIG_MAP, {})),
    ),
    _asks(
        "stale-update",
        allowing("configmaps", "UPDATE"),
        MADE,
        _quietly(put(CONFIG_MAP, config_map("a", {}, resourceVersion="1"))),
    ),
    _asks("subresources-apart", allowing("pods"), _MADE_POD, quiet(_RUNNING)),
    _asks(
        "all-subresources", allowing("pods/*"), _MADE_POD, quiet(_RUNNING), keep=_of_request("subResource operation")
    ),
    _asks("scope-of-clusters", allowing("configmaps", scope="Cluster"), MADE),
    _asks("scope-of-namespaces", allowing("configmaps", scope="Namespaced"), MADE),
    _asks("other-group", allowing("deployments"), _MADE_DEPLOYMENT),
    _asks(
        "equivalent-version",
        allowing("horizontalpodautoscalers", group="autoscaling"),
        quiet(post(_AUTOSCALERS, _AUTOSCALER)),
        keep=_of_request("kind requestKind object.apiVersion"),
    ),
    _asks(
        "exact-version",
        validating(hook("allow", rule("horizontalpodautoscalers", group="autoscaling"), matchPolicy="Exact")),
        quiet(post(_AUTOSCALERS, _AUTOSCALER)),
        keep=_of_request("kind"),
    ),
    _asks(
        "object-selector",
        validating(hook("allow", objectSelector={"matchLabels": {"x": "1"}})),
        quiet(post(CONFIG_MAPS, config_map("a", labels={"x": "1"}))),
        quiet(post(CONFIG_MAPS, config_map("b"))),
        quiet(merge(CONFIG_MAP, {"metadata": {"labels": {"x": "2"}}})),
        quiet(delete(CONFIG_MAP)),
    ),
    _asks(
        "namespace-selector",
        validating(hook("allow", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}})),
        MADE,
    ),
    _asks(
        "namespace-itself",
        allowing("namespaces", "UPDATE"),
        quiet(merge(NAMESPACE, {"metadata": {"labels": {"x": "1"}}})),
        keep=_of_request("name namespace operation"),
    ),
    *(
        _asks(f"condition-{id}", validating(_conditional(expression)), post(CONFIG_MAPS, A, keep=ANSWER))
        for id, expression in _MATCH.items()
    ),
    created("condition-error-ignored", *validating(_conditional(_MATCH["error"], failurePolicy="Ignore"))),
    created("conditions-one-false-one-broken", *validating(_conditional(_MATCH["error"], "false"))),
    created("conditions-all-true", *validating(_conditional("true", "true"))),
    # Order.
    _ordered("mutating-in-turn", *mutating(_label_hook("b"), _label_hook("a")), labels={"z": "0"}),
    _ordered(
        "configurations-by-name",
        *mutating(_label_hook("second"), name="b"),
        *mutating(_label_hook("first"), name="a"),
    ),
    Case(
        "mutating-before-validating",
        *_ALLOWED,
        *mutating(_label_hook("m"), name="m"),
        quiet(post(CONFIG_MAPS, config_map("a"))),
        Hooks(("path", "request.object.metadata.labels")),
    ),
    _ordered("mutating-stops-at-a-refusal", *mutating(hook("deny"), _label_hook("late"))),
    Case(
        "validating-of-two-refusals",
        *validating(hook("deny"), hook("deny-reason", name="two")),
        post(CONFIG_MAPS, config_map("a"), keep=("code",)),
    ),
    _ordered(
        "reinvoked",
        *mutating(_label_hook("first", reinvocationPolicy="IfNeeded"), _label_hook("second")),
        keep=("path", "request.object.metadata.labels"),
    ),
    _ordered(
        "not-reinvoked-when-nothing-changed",
        *mutating(_label_hook("first", reinvocationPolicy="IfNeeded"), hook("allow", name="second")),
    ),
    Case(
        "defaults-before-mutating",
        *mutating(hook("allow", rule("pods"))),
        _MADE_POD,
        Hooks(
            _of_request(
                "object.spec.containers.0.terminationMessagePath object.spec.restartPolicy object.status "
                "object.metadata.uid object.metadata.managedFields"
            )
        ),
    ),
    # Once there are no managers, none are recorded until the next apply.
    Case(
        "managed-fields-taken-away",
        *mutating(hook("patch-untracked", rule("configmaps", "CREATE"))),
        post(CONFIG_MAPS, A, **_MANAGED),
        merge(CONFIG_MAP, {"data": {"k": "w"}}, **_MANAGED),
        put(CONFIG_MAP, config_map("a", {"k": "x"}), **_MANAGED),
        apply(CONFIG_MAP, config_map("a", {"k": "y"}), **_MANAGED),
        apply(CONFIG_MAP, config_map("a", {"l": "y"}), **_MANAGED),
        merge(CONFIG_MAP, {"data": {"k": "z"}}, **_MANAGED),
    ),
    Case(
        "managed-fields-of-a-pod-taken-away",
        *mutating(hook("patch-untracked", rule("pods", "CREATE"))),
        post(PODS, pod("a"), **_MANAGED),
        merge(f"{POD}/status", {"status": {"message": "m"}}, **_MANAGED),
        merge(POD, {"metadata": {"labels": {"x": "1"}}}, **_MANAGED),
        apply(
            POD,
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
        quiet(merge(f"{_VALIDATING}/a-{{ns}}", {"metadata": {"labels": {"x": "1"}}})),
        Hooks(("path",)),
    ),
    # Dry run and side effects.
    created("dry-run", *_ALLOWED, query={"dryRun": "All"}),
    created("dry-run-on-dry-run", *validating(hook("allow", sideEffects="NoneOnDryRun")), query={"dryRun": "All"}),
    created("delete-denied", *validating(hook("deny", rule("configmaps", "DELETE"))), body=config_map("a")),
    Case(
        "delete-is-denied",
        *prepared(CONFIG_MAPS, A),
        *validating(hook("deny", rule("configmaps", "DELETE"))),
        delete(CONFIG_MAP),
        get(CONFIG_MAP, keep=("metadata.deletionTimestamp",)),
        delete(CONFIG_MAPS, query={"labelSelector": "!x", "fieldSelector": "metadata.name=a"}),
    ),
    Case(
        "update-is-denied",
        *prepared(CONFIG_MAPS, A),
        *validating(hook("deny", rule("configmaps", "UPDATE"))),
        put(CONFIG_MAP, config_map("a"), keep=ANSWER),
        merge(CONFIG_MAP, {"data": {"k": "w"}}, keep=ANSWER),
    ),
    Case(
        "eviction-is-denied",
        *prepared(PODS, pod("a")),
        *validating(hook("deny", rule("pods/eviction"))),
        post(f"{POD}/eviction", _EVICTION),
    ),
    Case(
        "configuration-removed",
        *validating(hook("deny")),
        quiet(delete(f"{_VALIDATING}/a-{{ns}}")),
        post(CONFIG_MAPS, A, until=lambda status, _: status == 201, keep=("kind",)),
    ),
    # Configurations.
    *(
        Case(
            f"defaults-{id}",
            post(
                path,
                {
                    "metadata": {"name": "d-{ns}"},
                    "webhooks": [
                        {
                            "name": "a.example.com",
                            "clientConfig": client,
                            "rules": [rule("none", "CREATE")],
                            "sideEffects": "None",
                            "admissionReviewVersions": ["v1"],
                        }
                    ],
                },
            ),
        )
        for id, path, client in (
            ("validating", _VALIDATING, {"service": {"namespace": "a", "name": "b"}}),
            ("mutating", _MUTATING, {"url": "https://127.0.0.1/x"}),
        )
    ),
    Case(
        "generation",
        quiet(post(_VALIDATING, _configuration("Validating", (hook("allow"),), "g"))),
        merge(f"{_VALIDATING}/g-{{ns}}", {"metadata": {"labels": {"a": "b"}}}, keep=["metadata.generation"]),
        merge(f"{_VALIDATING}/g-{{ns}}", {"webhooks": []}, keep=["metadata.generation"]),
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
    *(
        Case(
            f"bad-{id}",
            post(_MUTATING, {"metadata": {"name": "bad-{ns}"}, "webhooks": bad}, keep=("code", "message")),
        )
        for id, bad in (
            ("mutating-reinvocation", [hook("allow", reinvocationPolicy="Always")]),
            ("same-names", [hook("allow"), hook("deny")]),
        )
    ),
]
