"""Long lists in objects of tenants: the cost of reading them is linear, and lists that controllers read for every Pod
or node are limited. Tests count comparisons and do not measure time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import orjson
import pytest

from app.api.core.env import device_errors, mount_errors
from app.api.gopod import POD
from app.api.names import CONTAINER_PROBE_CONTEXT
from app.api.structural import validate
from app.features.broadcastjob.plan import fit_of
from app.features.broadcastjob.validation import spec_errors as job_errors
from app.features.cloneset.validation import Facts, spec_errors
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.containerrecreate.validation import pod_errors
from app.features.daemonset.validation import spec_errors as daemon_errors
from app.features.ephemeraljob.validation import container_errors
from app.features.imagepull.plan.lists import children_of, is_up_to_date
from app.features.imagepull.plan.lists import template_of as list_template
from app.features.imagepull.types import ImageListPullJob, ImagePullJob
from app.features.persistentpodstate.plan import affinity_with
from app.features.podprobe.plan.liveness import failures, pod_entry
from app.features.podprobe.plan.probes import impossible, pod_probe, rendered
from app.features.podprobe.types import PodContainerProbe
from app.features.sidecarset.injection.inject import SharingSource
from app.features.sidecarset.injection.inject import rendered as injected
from app.features.sidecarset.injection.prepared_containers import prepare_sidecar
from app.features.uniteddeployment.plan.rollout import Situation, allocated, judged
from app.features.uniteddeployment.plan.subsets import SubsetError, SubsetWorkload, Wanted, built_workload, patch_text
from app.features.uniteddeployment.types import Subset, UnitedDeployment
from app.features.workloadspread.plan.subsets import MAX_PATCHED_BYTES, patched, prepare
from app.features.workloadspread.plan.subsets import affinity_with as affinity_of_subset
from app.features.workloadspread.types import WorkloadSpreadSubset
from app.features.workloadspread.webhooks import template_of
from app.kube.fielderrors import MAX_AGGREGATE, Path, aggregate
from app.kube.objects import decode_pod
from app.kube.patches import PatchError, strategic_merge
from app.kube.quantities import parse
from app.kube.selectors import MAX_REQUIREMENTS, compile_selector
from app.pods.inplace.batch import containers_of_batch
from app.pods.inplace.eligibility import _finalizer_changes
from app.pods.inplace.state import RefMetadata, UpdateSpec
from app.pods.inplace.steps import _merged_metadata
from app.pods.lifecycle import Hook, Lifecycle, LifecycleState, first_state, is_hooked, state_patch
from app.pods.sorting import spread_ranks
from app.workloads.state import Outcome
from app.workloads.steps import Step, StepKind, UpdatePlan
from app.workloads.updater import Updater
from app.workloads.validation import MAX_CLAIM_TEMPLATES, repeated_claims
from tests.features.cloneset.test_webhooks import refused as refused_clone_set
from tests.features.cloneset.writing import Lookups, clone_set, rolling, write
from tests.features.persistentpodstate.states import HOST, read, state
from tests.features.persistentpodstate.test_webhooks import answer as refused_state
from tests.features.statefulset.writing import refusal as refusal_of_set
from tests.features.statefulset.writing import stateful_set
from tests.features.uniteddeployment.test_webhooks import united
from tests.features.uniteddeployment.test_webhooks import write as write_united
from tests.features.workloadspread.test_webhooks import create, spread
from tests.fuzz import cost
from tests.kit import objects
from tests.kube.fakes import virtual

Json = dict[str, Any]
BETA = "apps.kruise.io/v1beta1"
DELETED = "$deleteFromPrimitiveList/finalizers"


class Counted(str):
    """A string that counts comparisons and hashes of its class."""

    __slots__ = ()
    count = 0

    def __eq__(self, other: object) -> bool:
        Counted.count += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Counted.count += 1
        return str.__hash__(self)


def _pods_to_delete(names: list[str]) -> object:
    return spec_errors({"scaleStrategy": {"podsToDelete": names}}, None, Facts(), older=False)


def _claims(names: list[str]) -> list[Json]:
    return [{"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"]}} for name in names]


def _volumes(names: list[str]) -> object:
    template = {"spec": {"volumes": [{"name": name} for name in names]}}
    return template_of({"spec": {"template": template, "volumeClaimTemplates": _claims(names)}})


def _devices(names: list[str]) -> object:
    container = {
        "volumeMounts": [{"name": f"v{number}", "mountPath": path} for number, path in enumerate(_others(names))],
        "volumeDevices": [{"name": f"v{number}", "devicePath": path} for number, path in enumerate(names)],
    }
    return [*device_errors(container, {}, Path()), *mount_errors(container, {}, Path())]


def _conditions(names: list[str]) -> object:
    conditions = [{"type": name, "status": "True"} for name in names]
    return validate(CONTAINER_RECREATE_REQUEST.hub.schema, {"status": {"conditions": conditions}})


def _preferred_terms(names: list[str]) -> object:
    preferred = [(1, [HOST])] * len(names)
    record = {"web-0": {"nodeName": "n", "nodeTopologyLabels": {HOST: "n"}}}
    found = read(state(preferred=preferred, status=record))
    terms = [
        {"weight": 1, "preference": {"matchExpressions": [{"key": HOST, "operator": "In", "values": [name]}]}}
        for name in names
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    return affinity_with(found, found.status.pod_states["web-0"], {"affinity": affinity})


def _others(names: list[str]) -> list[str]:
    return [Counted(f"other-{name}") for name in names]


def _hooks(names: list[str]) -> object:
    pod = decode_pod(b"{}")
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, finalizers=tuple(_others(names))))
    hook, now = Hook({}, tuple(names)), datetime(2026, 1, 1, tzinfo=UTC)
    template = {"metadata": {"finalizers": _others(names)}}
    assert first_state(Lifecycle(pre_normal=hook), template) is LifecycleState.PREPARING_NORMAL
    assert not is_hooked(hook, pod)
    return state_patch(pod, LifecycleState.PREPARING_UPDATE, now, rearm=hook)


def _merged_finalizers(names: list[str]) -> object:
    others = _others(names)
    return _merged_metadata({"finalizers": names}, {"finalizers": others, DELETED: others}, {})


def _selector_values(names: list[str]) -> object:
    selector = compile_selector({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]})
    (requirement,) = selector.requirements
    long = type(requirement)(requirement.key, requirement.operator, tuple(names))
    return [long.matches({"app": f"other{number}"}) for number in range(len(names))]


READERS: dict[str, Callable[[list[str]], object]] = {
    "podsToDelete": _pods_to_delete,
    "repeated claims": lambda names: list(repeated_claims({"volumeClaimTemplates": _claims(names)})),
    "claims as volumes": _volumes,
    "devices": _devices,
    "keys of a list": _conditions,
    "preferred terms": _preferred_terms,
    "deleted": lambda names: strategic_merge({"finalizers": names}, {DELETED: _others(names)}, None),
    "hooks": _hooks,
    "finalizers of templates": lambda names: _finalizer_changes(names, _others(names)),
    "finalizers of updates": _merged_finalizers,
    "values": _selector_values,
}


@pytest.mark.behaviour("MGR-164")
@pytest.mark.parametrize("read_list", READERS.values(), ids=READERS)
def test_reading_a_list_compares_each_item_a_few_times(read_list: Callable[[list[str]], object]) -> None:
    names: list[str] = [Counted(f"n{number}") for number in range(200)]
    Counted.count = 0
    read_list(names)
    assert Counted.count < 10 * len(names)


@pytest.mark.behaviour("SS-50", "PW-35")
def test_equal_values_of_a_shared_variable_are_compared_once() -> None:
    """Comparing two values of a megabyte for every mount that uses them blocked a process for ten seconds."""
    containers = [
        {
            "name": name,
            "env": [{"name": "A", "value": Counted("same")}],
            "volumeMounts": [
                {"name": "data", "mountPath": f"/{name}/{number}", "subPathExpr": "$(A)/$(A)"} for number in range(50)
            ],
        }
        for name in ("main", "second")
    ]
    sidecar = prepare_sidecar({"name": "s", "shareVolumePolicy": {"type": "enabled"}}, "sets", init=False)
    Counted.count = 0
    body = injected(sidecar, SharingSource(containers, {}, {}), "sets")
    assert len(body["volumeMounts"]) == 100
    assert Counted.count == 1


@virtual
async def test_refused_updates_of_pods_are_not_compared_with_each_other() -> None:
    """Users may give any number of Pods a lifecycle state that prevents updates."""
    pod: Any = SimpleNamespace(name="web-0")
    steps = tuple(Step(StepKind.REFUSE, pod, Counted(f"obstacle {number}")) for number in range(500))
    snapshot: Any = SimpleNamespace(revision_of=lambda _: None)
    Counted.count = 0
    outcome = await object.__new__(Updater).carry_out(snapshot, UpdatePlan("r", steps), Outcome(), ())
    assert outcome.message is not None
    assert outcome.message.startswith("Pod web-0: obstacle 0; ")
    assert Counted.count <= 2 * len(steps)


@pytest.mark.behaviour("MGR-164")
def test_errors_that_each_show_the_whole_list_are_shortened() -> None:
    def errors() -> Iterator[str]:
        for number in range(1_000_000):
            yielded.append(number)
            yield f"{number}: {'x' * 1000}"

    yielded: list[int] = []
    text = aggregate(errors())
    assert text.startswith("[0: xxx")
    assert len(text) < MAX_AGGREGATE + 2_000
    assert len(yielded) < 100


@pytest.mark.behaviour("MGR-164")
def test_the_refusal_of_a_long_list_is_short() -> None:
    many = united(updateStrategy={"manualUpdate": {"partitions": dict.fromkeys(_numbered(5_000), 1)}})
    for message in (refusal_of_set(stateful_set(reserveOrdinals=[-1] * 5_000)), write_united(many).message):
        assert 0 < len(message) < 10 * MAX_AGGREGATE


def test_a_refused_request_shows_the_containers_of_its_pod_in_part() -> None:
    containers = [{"name": f"container-{number}"} for number in range(2_000)]
    pod = {"spec": {"nodeName": "n", "containers": containers}, "status": {"phase": "Running"}}
    wanted = {"podName": "p", "containers": [{"name": f"other-{number}"} for number in range(2_000)]}
    assert max(len(str(error)) for error in pod_errors(wanted, pod)) < 2_000


@pytest.mark.behaviour("MGR-164")
def test_only_some_of_many_pods_to_delete_are_read() -> None:
    class Asked(Lookups):
        async def pod(self, namespace: str, name: str) -> None:
            names.append(name)

    names: list[str] = []
    write(clone_set(scaleStrategy={"podsToDelete": _numbered(1_000)}), lookups=Asked())
    assert len(names) == 100


TOO_MANY = [{"key": "app", "operator": "NotIn", "values": [f"v{number}"]} for number in range(MAX_REQUIREMENTS)]


def _numbered(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def _ordered(**priority: Any) -> str:
    return refused_clone_set(BETA, updateStrategy=rolling(priorityStrategy=priority))


def _scattered() -> str:
    terms = [{"key": "a", "value": value} for value in _numbered(257)]
    return refused_clone_set(BETA, updateStrategy=rolling(scatterStrategy=terms))


WEIGHTS = [{"weight": 1, "matchSelector": {"matchExpressions": TOO_MANY[:200]}}] * 6
#: Refusals, and their words.
LIMITED: dict[str, tuple[Callable[[], str], str]] = {
    "selector": (
        lambda: refused_clone_set(BETA, selector={"matchLabels": {"app": "web"}, "matchExpressions": TOO_MANY}),
        "spec.selector: Too many: 257: must have at most 256 items",
    ),
    "claims": (
        lambda: refused_clone_set(BETA, volumeClaimTemplates=_claims(_numbered(257))),
        "spec.volumeClaimTemplates: Too many: 257",
    ),
    "claims of a set": (
        lambda: refusal_of_set(stateful_set(volumeClaimTemplates=_claims(_numbered(257)))),
        "spec.volumeClaimTemplates: Too many: 257",
    ),
    "scatter": (_scattered, "scatterStrategy: Required value: must have at most 256 terms"),
    "priority": (
        lambda: _ordered(orderPriority=[{"orderedKey": "a"}] * 257),
        "priorityStrategy: Required value: must have at most 256 terms",
    ),
    "weights": (
        lambda: _ordered(weightPriority=WEIGHTS),
        "priorityStrategy: Required value: must have at most 1000 requirements in the selectors of all terms",
    ),
    "subsets": (
        lambda: create(spread(*({"name": name, "maxReplicas": 1} for name in _numbered(257)))).message,
        "spec.subsets: Too many: 257",
    ),
    "ephemeral containers": (
        lambda: aggregate(container_errors([{}] * 257)),
        "ephemeralContainers: Too many: 257: must have at most 256 items",
    ),
    "paths of replicas": (
        lambda: create(spread({"name": "a"}, targetFilter={"replicasPathList": ["spec.replicas"] * 257})).message,
        "spec.targetFilter.replicasPathList: Too many: 257",
    ),
    "workloads": (
        lambda: write_united(united(*({"name": name} for name in _numbered(1_001)))).message,
        "spec.topology.subsets: Too many: 1001: must have at most 1000 items",
    ),
    "topology keys": (lambda: refused_state(state(required=_numbered(257))).message, "spec: Too many: 257"),
}


@pytest.mark.behaviour("MGR-164")
@pytest.mark.parametrize(("refusal", "words"), LIMITED.values(), ids=LIMITED)
def test_lists_that_controllers_read_for_every_pod_are_limited(refusal: Callable[[], str], words: str) -> None:
    assert words in refusal()
    assert MAX_CLAIM_TEMPLATES == MAX_REQUIREMENTS == 256


@pytest.mark.behaviour("MGR-164")
def test_templates_that_are_compared_with_every_node_are_limited() -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}] * 500 + [TERM] * 3}}}
    template = {"spec": {"affinity": affinity, "tolerations": [{"operator": "Exists"}] * 1_001}}
    for errors in (
        job_errors({"template": template}, ()),
        daemon_errors({"template": template, "selector": {}}, None, (), older=False),
    ):
        said = aggregate(errors)
        terms = f"spec.template.spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
        assert f"{terms}: Too many: 1100: must have at most 1000" in said
        assert "spec.template.spec.tolerations: Too many: 1001: must have at most 1000 items" in said


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"} for number in range(200)]}
TERMS = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}] * 200


@pytest.mark.behaviour("MGR-164")
def test_requests_of_zero_or_less_are_not_compared_with_every_node() -> None:
    requests = {"cpu": "1", **dict.fromkeys(_numbered(100), "0"), **{f"less-{number}": "-1" for number in range(9)}}
    fit = fit_of({"spec": {"containers": [{"resources": {"requests": requests}}]}})
    assert fit.requests == {"cpu": parse("1")}


@pytest.mark.behaviour("MGR-164")
def test_constraints_on_missing_node_labels_are_not_compared_with_every_pod() -> None:
    pods = [objects.pod(f"p{number}", uid=f"u{number}", node="n1") for number in range(20)]
    keys = ["zone", *(f"other-{number}" for number in range(1_000)), *(["zone"] * 1_000)]

    def steps(constraints: int) -> int:
        with cost.counted() as count:
            assert len(spread_ranks(pods, keys[-constraints:], {"n1": {"zone": "a"}}.get)) == 20
        return count[0]

    assert steps(2_001) < steps(1) + 20 * 2_001


@pytest.mark.behaviour("MGR-164", "PM-33")
def test_containers_that_share_labels_in_a_chain_are_found_in_one_pass() -> None:
    def steps(length: int) -> int:
        refs = {f"c{number}": RefMetadata({f"k{number}": "", f"k{number + 1}": ""}) for number in range(length)}
        spec = UpdateSpec(container_ref_metadata=refs)
        with cost.counted() as count:
            assert len(containers_of_batch(spec, {name: -number for number, name in enumerate(refs)})) == length
        return count[0]

    assert steps(400) < 5 * steps(100)


@pytest.mark.behaviour("MGR-164", "PPM-50")
def test_only_saved_probes_of_running_containers_are_read() -> None:
    """Anyone who may create Pods can set the annotation, and each change of a node reads it from all Pods there."""
    saved = {"livenessProbe": {"exec": {"command": ["/check"]}}}

    def steps(probes: int) -> int:
        entries = [{"name": f"c{number}", **saved} for number in range(probes)] + [{"name": "c0"}] * probes
        annotations = {CONTAINER_PROBE_CONTEXT: orjson.dumps(entries).decode()}
        status = {"name": "c0", "started": True, "state": {"running": {}}}
        pod = objects.pod(annotations=annotations, status={"containerStatuses": [status]})
        with cost.counted() as count:
            assert [one["containerName"] for one in pod_entry(pod, ())["probes"]] == ["c0"]
            assert failures(pod, ()) == []
        return count[0]

    steps(1)  # what is built once does not count
    assert steps(400) < steps(1) + 20 * 800


@pytest.mark.behaviour("MGR-164", "IMG-73")
def test_the_selector_of_a_list_is_not_rebuilt_for_each_job() -> None:
    images = _numbered(10)

    def steps(nodes: int) -> int:
        spec = {"selector": {"names": _numbered(nodes)}, "completionPolicy": {"type": "Always"}}
        job = ImageListPullJob.model_validate({"spec": {"images": images, **spec}})
        children = [
            ImagePullJob.model_validate(
                {"metadata": {"name": image}, "spec": {"image": image, "imagePullPolicy": "IfNotPresent", **spec}}
            )
            for image in images
        ]
        template = list_template(job)
        with cost.counted() as count:
            found = children_of(job, children, lambda child: is_up_to_date(child, template))
        assert set(found.current) == set(images)
        return count[0]

    steps(1)  # what is built once does not count
    assert steps(1_000) == steps(1)


@pytest.mark.behaviour("MGR-164")
def test_requirements_of_a_subset_are_not_multiplied_by_thousands_of_terms() -> None:
    required = {REQUIRED: {"nodeSelectorTerms": TERMS}}
    pod = {"affinity": {"nodeAffinity": required}}
    subset = WorkloadSpreadSubset.model_validate({"name": "a", "requiredNodeSelector": TERM})
    with pytest.raises(PatchError, match="200 requirements for each of 200 node selector terms"):
        affinity_of_subset(prepare(subset), pod)
    template = {"spec": {"template": {"spec": pod}}}
    with pytest.raises(SubsetError, match="nodeSelectorTerm of subset a: 200 requirements for each of 200"):
        _built(template, nodeSelectorTerm=TERM)


@pytest.mark.behaviour("MGR-164")
def test_a_patch_names_an_item_of_a_list_only_a_few_times() -> None:
    """Each repetition merges the whole item again, which may have thousands of variables."""
    pod = {"spec": {"containers": [{"name": "main", "env": [{"name": f"e{number}"} for number in range(1_000)]}]}}

    def merged(repeats: int) -> Json:
        patch = {"spec": {"containers": [{"name": "main", "env": [{"name": "e0", "value": "1"}]}] * repeats}}
        return strategic_merge(pod, patch, POD)

    assert merged(4)["spec"]["containers"][0]["env"][0] == {"name": "e0", "value": "1"}
    with pytest.raises(PatchError, match="name: main is named more than 4 times"):
        merged(5)


@pytest.mark.behaviour("MGR-164", "WS-32")
def test_a_large_pod_is_not_patched_while_others_wait() -> None:
    subset = prepare(WorkloadSpreadSubset.model_validate({"name": "a", "patch": {"metadata": {"labels": {"a": "b"}}}}))
    pod = {"metadata": {}, "spec": {"containers": [{"name": "main", "args": ["x" * MAX_PATCHED_BYTES]}]}}
    with pytest.raises(PatchError, match=r"Pod and patch total \d+ bytes, more than 262144"):
        patched(subset, pod)
    assert patched(subset, {"metadata": {}, "spec": {}})["metadata"] == {"labels": {"a": "b"}}


@pytest.mark.behaviour("MGR-164")
@pytest.mark.parametrize("reserve", [True, False])
def test_the_cost_of_subsets_is_linear_in_their_number(reserve: bool) -> None:
    def steps(subsets: int) -> int:
        names = _numbered(subsets)
        adaptive = {"type": "Adaptive", "adaptive": {"reserveUnschedulablePods": reserve}}
        obj = united(*({"name": name} for name in names), replicas=0)
        obj["spec"]["topology"]["scheduleStrategy"] = adaptive
        read_united = UnitedDeployment.model_validate(obj)
        status = {"subsetStatuses": [{"name": name} for name in names]}
        existing = {} if reserve else dict.fromkeys(names, SubsetWorkload())
        now = datetime(2026, 1, 1, tzinfo=UTC)
        found = Situation(read_united, "deploymentTemplate", {}, None, status, existing, {}, now)  # type: ignore[arg-type]
        with cost.counted() as count:
            allocated(replace(found, **judged(found)))
        return count[0]

    assert steps(400) < 5 * steps(100)


@pytest.mark.behaviour("MGR-164")
def test_the_probes_of_a_marker_are_rendered_once_for_all_pods() -> None:
    """A marker has up to 256 probes of many kilobytes, and each change of a Pod reads all Pods of the marker."""
    ports = ({"name": "web", "containerPort": 80},)
    pod = decode_pod(orjson.dumps({"spec": {"containers": [{"name": "main", "ports": ports}]}}))

    def steps(headers: int) -> int:
        action = {"port": "web", "httpHeaders": [{"name": f"h{number}", "value": "x"} for number in range(headers)]}
        probe = {"name": "p", "containerName": "main", "probe": {"httpGet": action}}
        probes = [rendered(PodContainerProbe.model_validate(probe))]
        with cost.counted() as count:
            assert impossible(probes, [pod]) == {}
            made = pod_probe("marker", probes, pod)
        assert made["probes"][0]["probe"]["httpGet"] == {**action, "port": 80, "scheme": "HTTP"}
        return count[0]

    assert steps(1_000) == steps(1)


def test_subsets_share_what_they_do_not_change() -> None:
    """A UnitedDeployment of 1.5 MB may have ten thousand subsets."""
    pod: Json = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}
    pod["spec"]["volumes"] = [{"name": "v"}]
    template: Json = {"spec": {"template": pod, "lifecycle": {}}}
    before = deepcopy(template)
    patch = {"spec": {"containers": [{"name": "main", "image": "b"}]}}
    made = _built(template, tolerations=[{"operator": "Exists"}], patch=patch)
    assert made.spec["template"]["spec"]["volumes"] is pod["spec"]["volumes"]
    assert made.spec["lifecycle"] is template["spec"]["lifecycle"]
    assert made.spec["template"]["spec"]["containers"] == [{"name": "main", "image": "b"}]
    assert template == before


def _built(template: Json, **fields: Any) -> Any:
    subset = Subset.model_validate({"name": "a", **fields})
    wanted = Wanted("a", 1, 0, template, "web-1", patch_text(subset))
    return built_workload("cloneSetTemplate", {"matchLabels": {"app": "web"}}, subset, wanted)
