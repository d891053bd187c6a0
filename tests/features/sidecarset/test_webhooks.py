"""The two SidecarSet webhooks: defaults, refusals and warnings in both versions."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from app.features.sidecarset.injection.selection import SETTLING, RecentSets, SidecarSetIndex
from app.features.sidecarset.webhooks import MUTATE, VALIDATE, WEBHOOKS, handlers, mutate
from app.kube.admission import Allowed, Denied, Operation, Patched, PatchOperation
from app.kube.clock import SystemClock
from app.kube.patches import apply
from tests.admission.writing import ALPHA, BETA, decided
from tests.features.writing import Lookups, review, revision, sidecar_set, write

HASH = "kruise.io/sidecarset-hash"
HASH_WITHOUT_IMAGE = "kruise.io/sidecarset-hash-without-image"
CONTAINER = {"name": "sidecar", "image": "busybox:1"}
HOT = {"upgradeStrategy": {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "empty:1"}}


def refusal(obj: dict[str, Any], old: dict[str, Any] | None = None, lookups: Lookups | None = None) -> str:
    written = write(obj, old, lookups)
    assert written.obj is None, "accepted"
    assert written.code == 422
    return written.message


def accepted(obj: dict[str, Any], old: dict[str, Any] | None = None, lookups: Lookups | None = None) -> dict[str, Any]:
    written = write(obj, old, lookups)
    assert written.obj is not None, written.message
    return written.obj


def with_container(**fields: Any) -> dict[str, Any]:
    return sidecar_set(containers=[{**CONTAINER, **fields}])


def with_init(update_type: str = "NotUpdate", **fields: Any) -> dict[str, Any]:
    container = {"name": "init", "image": "busybox:1", **fields}
    return sidecar_set(initContainers=[container], updateStrategy={"type": update_type})


# --- The declarations


@pytest.mark.behaviour("SS-108")
def test_both_webhooks_receive_creates_and_updates_of_both_versions() -> None:
    assert [(w.name, w.path, w.mutating) for w in WEBHOOKS] == [
        ("msidecarset.kb.io", "/mutate-apps-kruise-io-sidecarset", True),
        ("vsidecarset.kb.io", "/validate-apps-kruise-io-sidecarset", False),
    ]
    for webhook in WEBHOOKS:
        assert (webhook.failure_policy, webhook.side_effects) == ("Fail", "None")
        assert webhook.namespace_selector is webhook.object_selector is None
        for version in (ALPHA, BETA):
            asked = review(sidecar_set(version=version))
            assert webhook.rules[0].matches(asked)
            assert webhook.rules[0].matches(msgspec.structs.replace(asked, operation=Operation.UPDATE))
            assert not webhook.rules[0].matches(msgspec.structs.replace(asked, operation=Operation.DELETE))
            assert not webhook.rules[0].matches(msgspec.structs.replace(asked, subresource="status"))
    assert [handler.webhook for handler in handlers(Lookups())] == [MUTATE, VALIDATE]


# --- Defaults and hashes


@pytest.mark.behaviour("SS-8")
def test_forged_hashes_are_overwritten_and_other_annotations_kept() -> None:
    given = sidecar_set(metadata={"annotations": {HASH: "mine", "team": "mesh"}})
    annotations = accepted(given)["metadata"]["annotations"]
    assert annotations[HASH] == accepted(sidecar_set())["metadata"]["annotations"][HASH]
    assert annotations["team"] == "mesh"


@pytest.mark.behaviour("SS-5", "SS-8")
@pytest.mark.parametrize("version", [ALPHA, BETA])
def test_the_patch_is_small_cites_rules_and_is_idempotent(version: str) -> None:
    given = sidecar_set(version=version, updateStrategy={"partition": 1})
    decision = mutate(review(given))
    assert isinstance(decision, Patched)
    assert PatchOperation("add", "/spec/updateStrategy/type", "RollingUpdate", "SS-5") in decision.operations
    assert {operation.rule for operation in decision.operations} == {"SS-5", "SS-8"}
    assert not any(operation.path in ("", "/spec", "/spec/containers") for operation in decision.operations)
    stored = apply(decision.operations, given)
    assert mutate(review(stored, stored)) == Allowed()


@pytest.mark.behaviour("SS-8", "SS-10")
def test_an_empty_list_of_containers_keeps_its_hashes_on_the_next_write() -> None:
    stored = accepted(sidecar_set(containers=[], initContainers=[CONTAINER]))
    assert accepted(stored, stored)["metadata"]["annotations"] == stored["metadata"]["annotations"]


@pytest.mark.behaviour("SS-5", "SS-6", "SS-7")
@pytest.mark.parametrize("version", [ALPHA, BETA])
def test_a_set_is_stored_without_empty_values_as_in_openkruise(version: str) -> None:
    resource = {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
    mounts = [{"name": "v", "mountPath": "/v", "readOnly": False}]
    env = [{"name": "A", "value": ""}, resource]
    container = {**CONTAINER, "command": [], "stdin": False, "env": env, "volumeMounts": mounts, "transferEnv": []}
    stored = accepted(
        sidecar_set(
            version=version,
            containers=[container],
            initContainers=[],
            volumes=[{"name": "v", "emptyDir": {"medium": "", "sizeLimit": "1024Mi"}}],
            imagePullSecrets=[],
            patchPodMetadata=[],
            selector={"matchLabels": {"app": "web"}, "matchExpressions": []},
            updateStrategy={"paused": False, "scatterStrategy": [], "maxUnavailable": 0, "partition": 1},
            injectionStrategy={"paused": False},
        )
    )["spec"]
    resource["valueFrom"]["resourceFieldRef"]["divisor"] = "0"
    (sidecar,) = stored.pop("containers")
    assert not sidecar.keys() & {"command", "stdin", "transferEnv"}
    assert sidecar["env"] == [{"name": "A"}, resource]
    assert sidecar["volumeMounts"] == [{"name": "v", "mountPath": "/v"}]
    assert stored == {
        "selector": {"matchLabels": {"app": "web"}},
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        "updateStrategy": {"type": "RollingUpdate", "maxUnavailable": 0, "partition": 1},
        "injectionStrategy": {},
        "revisionHistoryLimit": 10,
    }


@pytest.mark.behaviour("SS-21")
def test_a_malformed_volume_is_refused_by_its_field() -> None:
    written = write(sidecar_set(volumes=[{"name": "conf", "hostPath": "/data/nginx/conf"}]))
    assert (written.code, written.message) == (400, "spec.volumes[0].hostPath: expected object, found string")


def test_unknown_fields_are_preserved() -> None:
    given = with_container(fieldOfTheFuture={"deep": [1]}, volumeMounts=None)
    assert accepted(given)["spec"]["containers"][0]["fieldOfTheFuture"] == {"deep": [1]}


@pytest.mark.behaviour("SS-9")
def test_an_empty_env_source_does_not_crash() -> None:
    assert accepted(with_container(transferEnv=[{"sourceContainerNameFrom": {}, "envName": "A"}]))


# --- Not a SidecarSet


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({}, "request.object: is required"),
        ({"apiVersion": "v1", "kind": "Pod"},
         "request.object: expected a SidecarSet of apps.kruise.io/v1beta1 or apps.kruise.io/v1alpha1, got Pod of v1"),
        ({"apiVersion": "apps.kruise.io/v2", "kind": "SidecarSet"},
         "request.object: expected a SidecarSet of apps.kruise.io/v1beta1 or apps.kruise.io/v1alpha1, "
         "got SidecarSet of apps.kruise.io/v2"),
        ({"apiVersion": BETA, "kind": "SidecarSet", "metadata": {"labels": {"a": 1}}},
         "metadata.labels.a: Input should be a valid string"),
        ({"apiVersion": BETA, "kind": "SidecarSet", "metadata": []}, None),
    ],
)  # fmt: skip
def test_an_invalid_sidecarset_is_a_bad_request(obj: dict[str, Any], message: str | None) -> None:
    asked = msgspec.structs.replace(review(sidecar_set()), object=obj)
    for handler in handlers(Lookups()):
        decision = decided(handler, asked)
        assert isinstance(decision, Denied)
        if message is not None:
            assert (decision.code, decision.message) == (400, message)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": "none"}, 'spec.containers: Invalid value: "string": spec.containers in body must be of type '
                                 'array: "string"'),
        ({"containers": [{"name": "a", "image": "i", "ports": "80"}]}, "spec.containers[0].ports: expected array, "
                                                                       "found string"),
        ({"containers": [{"name": "a", "image": 5}]}, "spec.containers[0].image: expected string, found number"),
        ({"containers": [None]}, 'spec.containers[0]: Invalid value: "null": spec.containers[0] in body must be of '
                                 'type object: "null"'),
    ],
)  # fmt: skip
def test_mistyped_values_are_named(spec: dict[str, Any], message: str) -> None:
    decision = mutate(review(sidecar_set(**spec)))
    assert decision == Denied(message, code=400)


def test_schema_rules_are_left_to_the_api_server_and_checked_without_one() -> None:
    given = sidecar_set(injectionStrategy={"revision": {"customVersion": "v", "policy": "Bad"}})
    assert not isinstance(mutate(review(given)), Denied)
    _, validating = handlers(Lookups())
    decision = decided(validating, review(given))
    assert isinstance(decision, Denied)
    assert decision.message.startswith(
        'SidecarSet.apps.kruise.io "s" is invalid: spec.injectionStrategy.revision.policy'
    )


# --- A single set


NAME_MESSAGE = (
    "sidecarset name must consist of alphanumeric characters or '-' "
    "(e.g. 'example-com', regex used for validation is '^[a-zA-Z0-9\\-]+$')"
)


@pytest.mark.behaviour("SS-16")
@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"name": "a.b"}, f'metadata.name: Invalid value: "a.b": {NAME_MESSAGE}'),
        ({"name": "a" * 64}, f'metadata.name: Invalid value: "{"a" * 64}": must be no more than 63 characters'),
        ({"name": ""}, "metadata.name: Required value: name or generateName is required"),
        ({"namespace": "shop"}, "metadata.namespace: Forbidden: not allowed on this type"),
        ({"labels": {"a": "not valid"}}, None),
        ({"annotations": {"a b": ""}}, None),
    ],
)
def test_invalid_names_and_labels_are_refused(metadata: dict[str, Any], message: str | None) -> None:
    found = refusal(sidecar_set(metadata=metadata))
    assert message is None or found == message


@pytest.mark.behaviour("SS-16")
def test_the_longest_name_is_accepted() -> None:
    assert accepted(sidecar_set("a" * 63))


@pytest.mark.behaviour("SS-17")
@pytest.mark.parametrize("field", ["selector", "namespaceSelector"])
def test_a_selector_without_requirements_is_refused(field: str) -> None:
    found = refusal(sidecar_set(**{field: {"matchLabels": {}, "matchExpressions": []}}))
    assert found.startswith(f"spec.{field}: Invalid value: v1.LabelSelector")
    assert found.endswith("empty selector is not valid for sidecarset.")


@pytest.mark.behaviour("SS-18")
@pytest.mark.parametrize("spec", [{"containers": None}, {"containers": [], "initContainers": []}])
def test_a_set_without_containers_is_refused(spec: dict[str, Any]) -> None:
    message = "spec: Required value: no initContainer or container defined for SidecarSet"
    assert refusal(sidecar_set(**spec)) == message


@pytest.mark.behaviour("SS-18")
def test_init_containers_alone_are_accepted() -> None:
    assert accepted(sidecar_set(containers=None, initContainers=[CONTAINER]))


@pytest.mark.behaviour("SS-19")
def test_native_sidecars_need_sets_that_never_update() -> None:
    message = "spec.updateStrategy: Required value: The initContainer in-place upgrade is not currently supported."
    message += " Set updateStrategy.type: NotUpdate; then only new Pods get native sidecars"
    assert refusal(with_init("RollingUpdate", restartPolicy="Always")) == message
    assert accepted(with_init("NotUpdate", restartPolicy="Always"))
    assert accepted(with_init("RollingUpdate"))


@pytest.mark.behaviour("SS-20", "SS-34")
@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (with_container(podInjectPolicy="Somewhere"), 'spec.containers[0].podInjectPolicy: Invalid value: "Somewhere": '
         'unsupported pod inject policy; choose one of: BeforeAppContainer, AfterAppContainer'),
        (with_container(shareVolumePolicy={"type": "Bad"}), 'spec.containers[0].shareVolumePolicy: Invalid value: '
         'v1beta1.ShareVolumePolicy{Type:"Bad"}: unsupported share volume policy; choose one of: enabled, disabled'),
        (with_container(shareVolumeDevicePolicy={"type": "Bad"}), 'spec.containers[0].shareVolumeDevicePolicy.type: '
         'Unsupported value: "Bad": supported values: "enabled", "disabled"'),
        (with_init(podInjectPolicy="Somewhere"), 'spec.initContainers[0].podInjectPolicy: Unsupported value: '
         '"Somewhere": supported values: "BeforeAppContainer", "AfterAppContainer"'),
        (with_init(shareVolumePolicy={"type": "Bad"}), 'spec.initContainers[0].shareVolumePolicy.type: '
         'Unsupported value: "Bad": supported values: "enabled", "disabled"'),
        (with_init(shareVolumeDevicePolicy={"type": "Bad"}), 'spec.initContainers[0].shareVolumeDevicePolicy.type: '
         'Unsupported value: "Bad": supported values: "enabled", "disabled"'),
        (with_init(**HOT), "spec.initContainers[0].upgradeStrategy.upgradeType: Forbidden: HotUpgrade is for "
         "containers only; leave it out"),
        (with_init(transferEnv=[{"sourceContainerNameFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
         "spec.initContainers[0].transferEnv[0].sourceContainerNameFrom.fieldRef.fieldPath: "
         'Unsupported value: "metadata.name"'),
    ],
)  # fmt: skip
def test_an_invalid_policy_of_a_container_is_refused(obj: dict[str, Any], message: str) -> None:
    assert refusal(obj) == message


@pytest.mark.behaviour("SS-21")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"initContainers": [CONTAINER]}, 'spec.initContainers[0].name: Duplicate value: "sidecar"'),
        ({"containers": [{**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
         'spec.containers[0].volumeMounts[0].name: Not found: "v"'),
        ({"volumes": [{"name": "v"}],
          "containers": [{**CONTAINER, "volumeDevices": [{"name": "v", "devicePath": "/v"}]}]},
         'spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source type of '
         "PersistentVolumeClaim or Ephemeral for block mode"),
    ],
)  # fmt: skip
def test_containers_and_volumes_must_form_a_valid_pod(spec: dict[str, Any], message: str) -> None:
    assert refusal(sidecar_set(**spec)) == message


@pytest.mark.behaviour("SS-21", "SS-6")
def test_a_startup_probe_without_numbers_is_unchanged() -> None:
    probe = {"httpGet": {"port": 80}}
    assert accepted(with_container(startupProbe=probe))["spec"]["containers"][0]["startupProbe"] == probe


@pytest.mark.behaviour("SS-21")
def test_with_an_api_server_its_validation_is_used() -> None:
    lookups = Lookups(template=["spec.containers: Required value", "spec.initContainers[0].image: Required value"])
    given = sidecar_set(containers=None, initContainers=[CONTAINER], volumes=[{"name": "v"}])
    # Pods have containers, so the set needs none.
    assert refusal(given, lookups=lookups) == "spec.initContainers[0].image: Required value"
    asked = lookups.templates[0]["spec"]
    assert [container["name"] for container in asked["initContainers"]] == ["sidecar"]
    assert asked["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert "podInjectPolicy" not in asked["initContainers"][0]
    assert asked["terminationGracePeriodSeconds"] == 2**31 - 1
    assert accepted(with_container(image=" spaces "), lookups=Lookups(template=[]))


@pytest.mark.behaviour("SS-22")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("metadata.labels['src']", None),
        ("metadata.annotations['Src/x']", None),
        ("metadata.name", 'fieldPath: Unsupported value: "metadata.name"'),
        ("spec.nodeName", 'fieldPath: Unsupported value: "spec.nodeName"'),
        ("spec.other", 'fieldPath: Invalid value: "spec.other": error converting fieldPath: field label not '
                       'supported: spec.other'),
        ("spec.x['a']", "field label does not support subscript"),
        ("metadata.labels['a b']", 'Invalid value: "a b": name part must consist of'),
    ],
)  # fmt: skip
def test_env_sources_are_labels_or_annotations(path: str, message: str | None) -> None:
    given = with_container(transferEnv=[{"sourceContainerNameFrom": {"fieldRef": {"fieldPath": path}}, "envName": "A"}])
    if message is None:
        assert accepted(given)
    else:
        found = refusal(given)
        assert found.startswith("spec.containers[0].transferEnv[0].sourceContainerNameFrom.fieldRef")
        assert message in found


def policy(**fields: Any) -> dict[str, Any]:
    whole = {"targetContainersMode": "sum", "resourcesExpr": {"limits": {"cpu": "cpu*50%"}}, **fields}
    return {"resourcesPolicy": {key: value for key, value in whole.items() if value is not None}}


@pytest.mark.behaviour("SS-23", "SS-67")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({**policy(), "resources": {"limits": {"cpu": "1"}}},
         "spec[0].resourcesPolicy: Forbidden: container sidecar: cannot be combined with resources.limits or requests"),
        (policy(resourcesExpr={"requests": {"memory": "memory-100Mi"}}),
         'spec[0].resourcesPolicy.resourcesExpr.requests.memory: Invalid value: "memory-100Mi": invalid expression'),
    ],
)  # fmt: skip
def test_a_resources_policy_excludes_resources_and_must_be_computable(fields: dict[str, Any], message: str) -> None:
    assert refusal(with_container(**fields)).startswith(message)


@pytest.mark.behaviour("SS-23")
def test_a_resources_policy_of_an_init_container_needs_a_native_sidecar() -> None:
    assert refusal(with_init(**policy())) == (
        "spec.initContainers[0].resourcesPolicy: Forbidden: may only be set for init containers with restartPolicy "
        "Always"
    )
    assert accepted(with_init(restartPolicy="Always", **policy()))


PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


@pytest.mark.behaviour("SS-24")
@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"partition": 1, "selector": {"matchLabels": {"c": "1"}}},
         "spec.updateStrategy: Forbidden: Partition and Selector cannot be used together"),
        ({"partition": "0%", "selector": {"matchLabels": {"c": "1"}}},
         "spec.updateStrategy: Forbidden: Partition and Selector cannot be used together"),
        ({"selector": {}}, None),
        ({"partition": -1}, "spec.updateStrategy.partition: Invalid value: -1: must be greater than or equal to 0"),
        ({"maxUnavailable": -1}, "spec.updateStrategy.maxUnavailable: Invalid value: -1: must be greater than or "
                                 "equal to 0"),
        ({"maxUnavailable": "x"}, "spec.updateStrategy.maxUnavailable: Invalid value: "
         f'intstr.IntOrString{{Type:1, IntVal:0, StrVal:"x"}}: {PERCENT}'),
        ({"partition": "-5%"}, "spec.updateStrategy.partition: Invalid value: "
         f'intstr.IntOrString{{Type:1, IntVal:0, StrVal:"-5%"}}: {PERCENT}'),
    ],
)  # fmt: skip
def test_invalid_rolling_update_limits_are_refused(strategy: dict[str, Any], message: str | None) -> None:
    found = refusal(sidecar_set(updateStrategy=strategy))
    assert message is None or found == message
    # They have no effect on a set that is never updated.
    assert accepted(sidecar_set(updateStrategy={**strategy, "type": "NotUpdate"}))


@pytest.mark.behaviour("SS-24")
@pytest.mark.parametrize(
    "strategy",
    [
        {"partition": 0, "selector": {"matchLabels": {"c": "1"}}},
        {"partition": "120%", "maxUnavailable": "200%"},
        {"partition": 3, "maxUnavailable": 0},
    ],
)
def test_unusual_but_valid_numbers_are_accepted(strategy: dict[str, Any]) -> None:
    assert accepted(sidecar_set(updateStrategy=strategy))


WEIGHT = {"weight": 10, "matchSelector": {"matchLabels": {"a": "b"}}}


@pytest.mark.behaviour("SS-25", "PM-6", "PM-7")
@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"priorityStrategy": {"weightPriority": [{**WEIGHT, "weight": -1}]}},
         "priorityStrategy: Required value: weight must be valid number in the range 1-100"),
        ({"priorityStrategy": {"weightPriority": [{**WEIGHT, "matchSelector": {}}]}},
         "priorityStrategy: Required value: selector can not be empty"),
        ({"priorityStrategy": {"weightPriority": [{**WEIGHT, "matchSelector": {"matchLabels": {"a": "b c"}}}]}},
         "priorityStrategy: Required value: invalid selector "),
        ({"priorityStrategy": {"orderPriority": [{"orderedKey": ""}]}},
         "priorityStrategy: Required value: order key can not be empty"),
        ({"scatterStrategy": [{"key": "", "value": "b"}]}, "scatterStrategy: Required value: key should not be empty"),
    ],
)  # fmt: skip
def test_invalid_update_orders_are_refused(strategy: dict[str, Any], message: str) -> None:
    assert refusal(sidecar_set(updateStrategy=strategy)).startswith(f"spec.updateStrategy.{message}")


@pytest.mark.behaviour("SS-25", "PM-6")
def test_weight_zero_and_scatter_terms_of_one_key_are_accepted() -> None:
    weights = {"weightPriority": [{**WEIGHT, "weight": 0}]}
    terms = [{"key": "a", "value": "b"}, {"key": "a", "value": ""}]
    assert accepted(sidecar_set(updateStrategy={"priorityStrategy": weights, "scatterStrategy": terms}))


@pytest.mark.behaviour("SS-27")
def test_invalid_metadata_patches_are_refused() -> None:
    def patched(*patches: dict[str, Any]) -> dict[str, Any]:
        return sidecar_set(patchPodMetadata=list(patches))

    found = refusal(patched({"annotations": {"a b": "c"}}))
    assert found.startswith('spec.patchPodMetadata[0].annotations: Invalid value: "a b"')
    assert accepted(patched({"annotations": {"a": "b"}, "patchPolicy": "MergePatchJson"}, {"annotations": {"c": "d"}}))


# --- The revision to inject


@pytest.mark.behaviour("SS-26")
@pytest.mark.parametrize("wanted", [{"revisionName": "s-1"}, {"customVersion": "v1"}])
def test_the_injection_revision_must_exist(wanted: dict[str, str]) -> None:
    given = sidecar_set(injectionStrategy={"revision": wanted})
    assert "Cannot find specific ControllerRevision" in refusal(given)
    assert accepted(given, lookups=Lookups(revisions=[revision("s-1", "s", "v1")]))


@pytest.mark.behaviour("SS-26")
def test_a_revision_is_read_again_only_when_another_is_named() -> None:
    known = Lookups(revisions=[revision("s-1", "s", "v1")])
    stored = accepted(sidecar_set(injectionStrategy={"revision": {"revisionName": "s-1"}}), lookups=known)
    # The revision was deleted; pausing must still be possible.
    paused = copy.deepcopy(stored)
    paused["spec"]["updateStrategy"]["paused"] = True
    gone = Lookups()
    assert accepted(paused, stored, gone)
    assert gone.asked == []
    renamed = copy.deepcopy(stored)
    renamed["spec"]["injectionStrategy"]["revision"]["revisionName"] = "s-2"
    assert "not found" in refusal(renamed, stored, gone)


@pytest.mark.behaviour("SS-34")
def test_a_revision_of_another_set_is_refused() -> None:
    given = sidecar_set(injectionStrategy={"revision": {"revisionName": "other-1"}})
    assert refusal(given, lookups=Lookups(revisions=[revision("other-1", "other")])) == (
        'spec.injectionStrategy.revision.revisionName: Invalid value: "other-1": '
        "the ControllerRevision belongs to SidecarSet other"
    )
    assert "not found" in refusal(
        sidecar_set(injectionStrategy={"revision": {"customVersion": "v1"}}),
        lookups=Lookups(revisions=[revision("other-1", "other", "v1")]),
    )


# --- Stricter than OpenKruise


@pytest.mark.behaviour("SS-34")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"updateStrategy": {"type": "OnDelete"}}, 'spec.updateStrategy.type: Unsupported value: "OnDelete": '
         'supported values: "RollingUpdate", "NotUpdate"'),
        ({"containers": [{**CONTAINER, "upgradeStrategy": {"upgradeType": "Warm"}}]},
         'spec.containers[0].upgradeStrategy.upgradeType: Unsupported value: "Warm": supported values: '
         '"ColdUpgrade", "HotUpgrade"'),
        ({"containers": [{**CONTAINER, "upgradeStrategy": {"upgradeType": "HotUpgrade"}}]},
         "spec.containers[0].upgradeStrategy.hotUpgradeEmptyImage: Required value: the idle twin of sidecar needs an "
         "image"),
        ({"containers": [{**CONTAINER, **HOT, "name": "a" * 62}]}, 'spec.containers[0].name: Invalid value: '
                                                                   f'"{"a" * 62}": '
         "must be no more than 61 characters with HotUpgrade, which appends -1 and -2"),
        ({"containers": [{**CONTAINER, **HOT, "name": "a"}, {**CONTAINER, "name": "a-2"}]},
         'spec.containers[1].name: Invalid value: "a-2": is the name of a twin of a'),
        ({"containers": [{**CONTAINER, **HOT, "name": "a"}], "initContainers": [{**CONTAINER, "name": "a-1"}]},
         'spec.initContainers[0].name: Invalid value: "a-1": is the name of a twin of a'),
        ({"patchPodMetadata": [{"annotations": {"a": "b"}, "patchPolicy": "Replace"}]},
         'spec.patchPodMetadata[0].patchPolicy: Unsupported value: "Replace": '
         'supported values: "Retain", "Overwrite", "MergePatchJson"'),
    ],
)  # fmt: skip
def test_specs_that_cannot_work_are_refused(spec: dict[str, Any], message: str) -> None:
    assert refusal(sidecar_set(**spec)) == message


@pytest.mark.behaviour("SS-A")
def test_a_custom_version_must_be_a_valid_label() -> None:
    for bad in ("not a label!", "a" * 64):
        assert refusal(sidecar_set(customVersion=bad)).startswith(f'spec.customVersion: Invalid value: "{bad}"')
    assert accepted(sidecar_set(customVersion="v1.2_3"))


@pytest.mark.behaviour("SS-34")
def test_a_set_admitted_by_openkruise_stays_editable() -> None:
    stored = sidecar_set(updateStrategy={"type": "Sometimes"}, customVersion="not a label!")
    edited = copy.deepcopy(stored)
    edited["spec"]["updateStrategy"]["paused"] = True
    assert accepted(edited, stored)
    edited["spec"]["updateStrategy"]["type"] = "OnDelete"
    assert "Unsupported value" in refusal(edited, stored)


# --- Compared with its former state


@pytest.mark.behaviour("SS-28")
def test_containers_may_be_changed_and_removed_but_not_added() -> None:
    stored = accepted(sidecar_set(containers=[CONTAINER, {"name": "second", "image": "i:1"}]))
    assert accepted(sidecar_set(containers=[{"name": "second", "image": "i:2"}]), stored)
    assert refusal(sidecar_set(containers=[{"name": "renamed", "image": "i:1"}]), stored) == (
        'spec.containers: Invalid value: "renamed": container renamed is not found'
    )
    assert accepted(sidecar_set(initContainers=[{"name": "new", "image": "i:1"}]), stored)


@pytest.mark.behaviour("SS-28")
def test_the_upgrade_type_of_a_container_is_immutable() -> None:
    never_defaulted = sidecar_set(containers=[{**CONTAINER, "upgradeStrategy": {}}])
    for stored in (accepted(sidecar_set()), never_defaulted):
        assert refusal(with_container(**HOT), stored).endswith("container sidecar upgradeType is immutable")


def test_a_terminating_set_is_not_validated() -> None:
    stored = sidecar_set(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}, selector={})
    assert accepted({**stored, "metadata": {**stored["metadata"], "finalizers": []}}, stored)


def test_a_set_that_claims_to_be_terminating_is_validated() -> None:
    claimed = sidecar_set(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, selector={})
    assert "spec.selector" in refusal(claimed)
    assert "spec.selector" in refusal(claimed, sidecar_set())


def test_an_unreadable_stored_object_does_not_block_updates() -> None:
    assert accepted(sidecar_set(), {**sidecar_set(), "spec": {"containers": "none"}})


# --- Warnings


def test_fields_that_would_be_lost_get_a_warning() -> None:
    given = with_container(volumeMount=[{"name": "v"}], env=[{"name": "A", "val": "x"}])
    given["spec"]["volumes"] = [{"name": "v", "emptyDir": {"sizelimit": "1Gi"}}]
    assert write(given).warnings == (
        'unknown field "spec.containers[0].volumeMount"',
        'unknown field "spec.containers[0].env[0].val"',
        'unknown field "spec.volumes[0].emptyDir.sizelimit"',
    )


@pytest.mark.behaviour("SS-24")
@pytest.mark.parametrize(
    ("strategy", "warned"),
    [
        ({"maxUnavailable": 0}, True),
        ({"maxUnavailable": "0%", "partition": "0%"}, True),
        ({"maxUnavailable": 0, "partition": 1}, False),
        ({"maxUnavailable": 0, "type": "NotUpdate"}, False),
        ({"maxUnavailable": 1}, False),
    ],
)
def test_an_update_blocked_by_max_unavailable_gets_a_warning(strategy: dict[str, Any], warned: bool) -> None:
    warnings = write(sidecar_set(updateStrategy=strategy)).warnings
    zero = strategy["maxUnavailable"]
    said = "with partition 0: no ready Pod is updated until maxUnavailable is raised"
    assert warnings == ((f"spec.updateStrategy.maxUnavailable: {zero} {said}",) if warned else ())


@pytest.mark.behaviour("SS-1")
def test_a_namespace_selector_next_to_a_namespace_gets_a_warning() -> None:
    spec = {"namespace": "shop", "namespaceSelector": {"matchLabels": {"a": "b"}}}
    assert write(sidecar_set(version=ALPHA, **spec)).warnings == (
        "spec.namespaceSelector is ignored, because spec.namespace is set",
    )


def test_all_errors_are_reported_once_each() -> None:
    wrong = sidecar_set(selector={}, containers=[{"name": "a"}, {"name": "b"}], updateStrategy={"partition": -1})
    assert refusal(wrong).count(", spec.") == 3


@pytest.mark.behaviour("SS-39")
def test_injection_includes_every_set_that_is_about_to_be_stored() -> None:
    index, clock = SidecarSetIndex(), SystemClock()
    _, validating = handlers(Lookups(), RecentSets(index, clock))

    def judged(asked: Any) -> None:
        decided(validating, asked)

    stored = accepted(sidecar_set(metadata={"uid": "u", "generation": 3}))
    judged(msgspec.structs.replace(review(stored), dry_run=True))
    judged(review({**stored, "spec": {}}))
    assert index.behind(clock.monotonic()) == []
    judged(review(stored))
    assert index.behind(clock.monotonic()) == ["s"]
    assert index.behind(clock.monotonic() + SETTLING) == []
    judged(review(stored, stored))
    index.update(stored)
    assert index.behind(clock.monotonic()) == []
