"""Validates UnitedDeployments. Pure; the API server's errors in the Pod template are arguments. [UD-7 … UD-18]"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.api.core.pods import node_selector_term_errors, toleration_errors, unknown_fields
from app.api.fields import NodeSelectorTerm
from app.api.gojson import GoTypeError
from app.api.gopod import POD, POD_TEMPLATE
from app.features.statefulset.types import DELETE, ORDERED_READY, PARALLEL, RETAIN
from app.features.uniteddeployment.defaults import as_printed
from app.features.uniteddeployment.plan.subsets import ON_DELETE, ROLLING_UPDATE, STATEFUL
from app.features.uniteddeployment.types import (
    ADAPTIVE,
    ADVANCED_STATEFUL_SET,
    CLONE_SET,
    DEPLOYMENT,
    MANUAL,
    NATIVE_FIELDS,
    STATEFUL_SET,
    TEMPLATES,
    UNLIMITED,
    Share,
    ShareError,
    UnitedDeployment,
    UnitedDeploymentSpec,
    count_of,
    template_of,
)
from app.features.uniteddeployment.types import Subset as SubsetSpec
from app.kube.fielderrors import (
    FieldError,
    GoLiteral,
    Path,
    forbidden,
    go_string_map,
    invalid,
    new_errors,
    not_supported,
    quote,
    required,
    too_many,
)
from app.kube.jsonvalues import as_object, json_size
from app.kube.patches import PatchError, same, strategic_merge
from app.kube.selector_query import SelectorError
from app.kube.selectors import compile_selector, go_label_selector, validate_selector
from app.kube.validation import is_dns1123_label

SPEC: Final = Path("spec")
TEMPLATE: Final = SPEC.child("template")
SUBSETS: Final = SPEC.child("topology", "subsets")
#: A label value has at most 63 characters, of which a dash and a hash take up to eleven.
LONGEST_NAME: Final = 52
#: The API server appends a dash and five characters to the names of workloads, and the Pods of most kinds carry the
#: name of the workload's revision as a label.
LONGEST_LABELED_NAME: Final = LONGEST_NAME - 6
#: Maximum number of subsets. Each reconcile builds all of their workloads.
MAX_SUBSETS: Final = 1_000
#: Maximum number of patches to validate, and maximum of that number times the size of the Pod template in bytes. The
#: controller reports errors in the remaining patches.
MOST_PATCHES: Final = 64
MOST_PATCHED_BYTES: Final = 1024 * 1024
#: Maximum number of unknown fields to warn about.
MAX_UNKNOWN: Final = 10
_MISMATCH: Final = "`selector` does not match template `labels`"
_NOT_NEGATIVE: Final = "must be greater than or equal to 0"
#: Fields of a StatefulSet spec that may change. [UD-17]
_MUTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    STATEFUL_SET: (
        "template",
        "updateStrategy",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
        "ordinals",
        "replicas",
    ),
    ADVANCED_STATEFUL_SET: ("template", "updateStrategy", "replicas"),
}


def spec_errors(
    spec: UnitedDeploymentSpec, former: UnitedDeploymentSpec | None, template_errors: Sequence[FieldError | str]
) -> list[FieldError | str]:
    """Return all errors in a spec. ``former`` is the spec it replaces; ``template_errors`` are those that the API
    server finds in the Pod template."""
    replicas = spec.replicas
    errors: list[FieldError | str] = []
    if replicas is not None and replicas < 0:
        errors.append(invalid(SPEC.child("replicas"), replicas, _NOT_NEGATIVE))
    errors += _selector_errors(spec.selector)
    errors += _new_template_errors(spec, former)
    errors += template_errors
    errors += topology_errors(spec)
    errors += _update_errors(spec)
    return errors


def creation_errors(united: UnitedDeployment, *, short_hash: bool) -> list[FieldError]:
    """Return an error if the name is too long for the Pods' labels. Existing objects are not checked.
    ``short_hash``: labels of CloneSets' Pods contain only the hash. [UD-71]"""
    given, name = template_of(united.spec), united.metadata.name or ""
    kind = given[0] if given is not None else DEPLOYMENT
    labeled = kind in (STATEFUL_SET, ADVANCED_STATEFUL_SET) or (kind == CLONE_SET and not short_hash)
    most = LONGEST_LABELED_NAME if labeled else LONGEST_NAME
    if len(name) <= most:
        return []
    carried = f"its {'CloneSets' if kind == CLONE_SET else 'StatefulSets'}" if labeled else "its revision"
    detail = f"must be no more than {most} characters: a label of the Pods contains the name of {carried} and a hash"
    return [invalid(Path("metadata").child("name"), name, detail)]


def update_errors(new: UnitedDeployment, old: UnitedDeployment) -> list[FieldError]:
    """Return errors for changes to immutable fields. [UD-16 … UD-18]"""
    errors = _immutable_template_errors(new.spec, old.spec)
    before = {one.name: one for one in old.spec.subsets}
    for index, subset in enumerate(new.spec.subsets):
        former = before.get(subset.name)
        if former is None:
            continue
        placing = [(one.node_selector_term or NodeSelectorTerm(), one.tolerations or []) for one in (subset, former)]
        for field, now, then in zip(("nodeSelectorTerm", "tolerations"), *placing, strict=True):
            if now != then:
                errors.append(forbidden(SUBSETS.index(index).child(field), "may not be changed in an update"))
    if not same(new.spec.selector, old.spec.selector):
        errors.append(forbidden(SPEC.child("selector"), "may not be changed in an update"))
    return errors


def patch_errors(new: UnitedDeployment, old: UnitedDeployment | None) -> list[FieldError]:
    """Return errors in patches that cannot be merged with the Pod template. Unchanged patches are not validated again.
    [UD-72]"""
    given, former = template_of(new.spec), template_of(old.spec) if old is not None else None
    template = (given[1].get("spec") or {}).get("template") if given is not None else None
    if not isinstance(template, dict):
        return []
    before = {one.name: one.patch for one in old.spec.subsets} if old is not None and same(given, former) else {}
    errors: list[FieldError] = []
    left = max(1, min(MOST_PATCHES, MOST_PATCHED_BYTES // json_size(template)))
    for index, subset in enumerate(new.spec.subsets):
        if not subset.patch or same(subset.patch, before.get(subset.name)):
            continue
        if (left := left - 1) < 0:
            break
        try:
            strategic_merge(template, subset.patch, POD)
        except PatchError as error:
            detail = f"cannot be merged with the Pod template: {error}"
            errors.append(invalid(SUBSETS.index(index).child("patch"), GoLiteral(subset.name), detail))
    return errors


def topology_errors(spec: UnitedDeploymentSpec) -> list[FieldError]:
    """Return errors in the topology. [UD-11 … UD-14]"""
    if (count := len(spec.subsets)) > MAX_SUBSETS:
        return [too_many(SUBSETS, count, MAX_SUBSETS)]
    errors: list[FieldError] = []
    known: set[str] = set()
    for index, subset in enumerate(spec.subsets):
        path = SUBSETS.index(index)
        if not subset.name:
            errors.append(required(path.child("name")))
        else:
            errors += [
                invalid(path.child("name"), subset.name, f"invalid subset name {message}")
                for message in is_dns1123_label(subset.name)
            ]
        if subset.name in known:
            errors.append(invalid(path.child("name"), subset.name, f"duplicated subset name {subset.name}"))
        known.add(subset.name)
        if subset.node_selector_term is not None:
            errors += node_selector_term_errors(subset.node_selector_term, path.child("nodeSelectorTerm"))
        errors += toleration_errors(subset.tolerations or (), path.child("tolerations"))
    return [*errors, *_share_errors(spec), *_strategy_errors(spec)]


def warnings(spec: UnitedDeploymentSpec) -> tuple[str, ...]:
    """Return warnings about settings without effect."""
    found = []
    given = template_of(spec)
    if given is not None and given[0] == DEPLOYMENT and any(spec.partitions.values()):
        found.append(
            "spec.updateStrategy.manualUpdate.partitions: Deployments have no partition, so all Pods are updated"
        )
    strategy = spec.schedule_strategy
    if strategy.adaptive is not None and strategy.type != ADAPTIVE:
        found.append("spec.topology.scheduleStrategy.adaptive: has no effect unless the type is Adaptive")
    if given is not None and given[0] != DEPLOYMENT and _rolling(given[1]).get("partition") is not None:
        at = f"spec.template.{given[0]}.spec.updateStrategy.rollingUpdate.partition"
        found.append(f"{at}: ignored; set spec.updateStrategy.manualUpdate.partitions per subset instead")
    if not spec.subsets:
        found.append("spec.topology.subsets: without subsets, no Pods are created")
    if given is not None:
        found += _unknown_fields(*given)
    return tuple(found)


def _unknown_fields(name: str, workload: Mapping[str, Any]) -> list[str]:
    """Return warnings about unknown fields of the workload, which the schema preserves. [UD-72]"""
    body, path = workload.get("spec") or {}, TEMPLATE.child(name, "spec")
    known = NATIVE_FIELDS.get(name, body)
    found = [str(path.child(field)) for field in body if field not in known]
    found += unknown_fields(POD_TEMPLATE, body.get("template") or {}, str(path.child("template")))
    return [f"{field}: unknown field; it has no effect" for field in found[:MAX_UNKNOWN]]


def _selector_errors(selector: Mapping[str, Any]) -> list[FieldError]:
    path = SPEC.child("selector")
    errors = validate_selector(selector, path)
    if errors:
        return [*errors, invalid(path, go_label_selector(_without_empty(selector)))]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return [invalid(path, go_label_selector(selector), "empty selector is invalid for statefulset")]
    return []


def _without_empty(selector: Mapping[str, Any]) -> dict[str, Any]:
    """Return the selector without empty lists in its expressions, as Go marshals it."""
    expressions = [
        {key: value for key, value in one.items() if value != []}
        for one in selector.get("matchExpressions") or ()
        if isinstance(one, dict)
    ]
    return {**selector, **({"matchExpressions": expressions} if expressions else {})}


def _template_errors(spec: UnitedDeploymentSpec) -> list[FieldError]:
    """Return errors in the labels and fields of the workload template. [UD-8 … UD-10]"""
    given = spec.template.to_dict() if spec.template is not None else {}
    names = [name for name in TEMPLATES if given.get(name) is not None]
    if not names:
        return [required(TEMPLATE, f"should provide one of {', '.join(TEMPLATES[:-1])}, or {TEMPLATES[-1]}")]
    if len(names) > 1:
        return [
            invalid(TEMPLATE.child(names[1]), names[1], f"should provide only one of {', '.join(names)}"),
        ]
    (name,) = names
    path, workload = TEMPLATE.child(name), given[name]
    errors: list[FieldError] = []
    if name == STATEFUL_SET and not any(spec.selector.values()):
        detail = "empty selector is invalid for statefulset"
        errors.append(invalid(path.child("spec", "selector"), go_label_selector(spec.selector), detail))
    body = workload.get("spec") or {}
    template = as_object(body.get("template"))
    places = [(path.child("metadata", "labels"), _labels(workload))]
    places.append((path.child("spec", "template", "metadata", "labels"), _labels(template)))
    try:
        selector = compile_selector(spec.selector)
    except SelectorError:
        selector = None
    for place, labels in places:
        if selector is not None and selector.requirements and not selector.matches(labels):
            errors.append(invalid(place, GoLiteral(go_string_map(labels)), _MISMATCH))
    if body.get("replicas") is not None:
        errors.append(
            invalid(path.child("spec", "replicas"), body["replicas"], "replicas in template will not be used")
        )
    rolling = _rolling(workload)
    rolls = as_object(body.get("updateStrategy")).get("type") == ROLLING_UPDATE
    if name in STATEFUL and rolls and rolling.get("partition") is not None:
        at = path.child("spec", "updateStrategy", "rollingUpdate", "partition")
        errors.append(invalid(at, rolling["partition"], "partition in template will not be used"))
    if name == STATEFUL_SET:
        errors += _stateful_set_errors(body, path.child("spec"))
    pod, at = as_object(template.get("spec")), path.child("spec", "template", "spec")
    if pod.get("restartPolicy") not in (None, "", "Always"):
        errors.append(not_supported(at.child("restartPolicy"), pod["restartPolicy"], ("Always",)))
    if name == STATEFUL_SET and pod.get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in StatefulSet is not Supported"
        errors.append(forbidden(at.child("activeDeadlineSeconds"), detail))
    return errors


def _stateful_set_errors(spec: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Validate the spec of a native StatefulSet, except its template, as in Kubernetes 1.34. [UD-10]"""
    policy = spec.get("podManagementPolicy") or ORDERED_READY
    if policy not in (ORDERED_READY, PARALLEL):
        yield invalid(path.child("podManagementPolicy"), policy, f"must be '{ORDERED_READY}' or '{PARALLEL}'")
    strategy, at = as_object(spec.get("updateStrategy")), path.child("updateStrategy")
    kind, rolling = strategy.get("type") or ROLLING_UPDATE, strategy.get("rollingUpdate")
    if kind == ON_DELETE and rolling is not None:
        yield invalid(at.child("rollingUpdate"), rolling, f"only allowed for updateStrategy '{ROLLING_UPDATE}'")
    elif kind not in (ON_DELETE, ROLLING_UPDATE):
        yield invalid(at, strategy, f"must be '{ROLLING_UPDATE}' or '{ON_DELETE}'")
    retention = as_object(spec.get("persistentVolumeClaimRetentionPolicy"))
    for field in ("whenDeleted", "whenScaled"):
        if retention.get(field) not in (None, "", RETAIN, DELETE):
            at = path.child("persistentVolumeClaimRetentionPolicy", field)
            yield not_supported(at, retention[field], (RETAIN, DELETE))
    for holder, field, at in (
        (spec, "minReadySeconds", path),
        (as_object(spec.get("ordinals")), "start", path.child("ordinals")),
    ):
        if isinstance(number := holder.get(field), int) and number < 0:
            yield invalid(at.child(field), number, _NOT_NEGATIVE)


def _new_template_errors(spec: UnitedDeploymentSpec, former: UnitedDeploymentSpec | None) -> list[FieldError]:
    """Return the errors in the workload template. OpenKruise does not validate CloneSet templates, so errors that the
    stored object already has are admitted. [UD-8]"""
    errors = _template_errors(spec)
    given = template_of(spec)
    if former is None or given is None or given[0] != CLONE_SET:
        return errors
    return new_errors(errors, _template_errors(former))


def _rolling(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_object(as_object(as_object(workload.get("spec")).get("updateStrategy")).get("rollingUpdate"))


def _share_errors(spec: UnitedDeploymentSpec) -> list[FieldError]:
    """Return errors in the shares of the subsets. [UD-12, UD-13]"""
    errors: list[FieldError] = []
    subsets, replicas = spec.subsets, spec.replicas
    counts: dict[str, list[int | None]] = {"replicas": [], "minReplicas": [], "maxReplicas": []}
    for index, subset in enumerate(subsets):
        shares = {"replicas": subset.replicas, "minReplicas": subset.min_replicas, "maxReplicas": subset.max_replicas}
        for field, share in shares.items():
            try:
                counts[field].append(None if share is None else count_of(share, replicas))
            except ShareError as error:
                errors.append(invalid(SUBSETS.index(index).child(field), _go_share(share), str(error)))
                counts[field].append(None)
        least, most = counts["minReplicas"][-1], counts["maxReplicas"][-1]
        if least is not None and least > (UNLIMITED if most is None else most):
            detail = f"subset[{index}].minReplicas must be less than or equal to maxReplicas"
            errors.append(invalid(SUBSETS.index(index).child("minReplicas"), _go_share(subset.min_replicas), detail))
    if errors:
        return errors
    bounded = any(one.min_replicas is not None or one.max_replicas is not None for one in subsets)
    fixed = [count for count in counts["replicas"] if count is not None]
    if bounded and fixed:
        return [
            invalid(
                SUBSETS,
                GoLiteral("subsets"),
                "subset.Replicas and subset.MinReplicas/MaxReplicas are mutually exclusive",
            )
        ]
    if bounded:
        return _bound_errors(subsets, replicas)
    return _sum_errors(len(subsets), replicas, fixed)


def _bound_errors(subsets: Sequence[SubsetSpec], replicas: int | None) -> list[FieldError]:
    if replicas is None:
        return [invalid(SUBSETS, GoLiteral("nil"), "spec.replicas must be set if minReplicas or maxReplicas is set")]
    if all(one.max_replicas is not None for one in subsets):
        return [invalid(SUBSETS, GoLiteral(str(len(subsets))), "at least one subset.maxReplicas must be empty")]
    return []


def _sum_errors(subsets: int, replicas: int | None, fixed: Sequence[int]) -> list[FieldError]:
    total = sum(fixed)
    errors = []
    if replicas is None:
        if len(fixed) < subsets:
            errors.append(invalid(SUBSETS, None, "spec.replicas must be set unless every subset has replicas"))
        return errors
    if total > replicas:
        detail = (
            f"sum of indicated subset replicas {total} should not be greater than UnitedDeployment replicas {replicas}"
        )
        errors.append(invalid(SUBSETS, total, detail))
    if subsets and len(fixed) == subsets and total != replicas:
        start = "if replicas of all subsets are provided, the sum of indicated subset replicas"
        errors.append(invalid(SUBSETS, total, f"{start} {total} should equal UnitedDeployment replicas {replicas}"))
    return errors


def _strategy_errors(spec: UnitedDeploymentSpec) -> list[FieldError]:
    """Return errors in the schedule strategy. [UD-14]"""
    strategy = spec.schedule_strategy
    if strategy.type != ADAPTIVE:
        return []
    errors: list[FieldError] = [
        forbidden(
            SUBSETS.index(index).child("replicas"),
            "specify replicas use minReplicas/maxReplicas to enable adaptive strategy",
        )
        for index, subset in enumerate(spec.subsets)
        if subset.replicas is not None
    ]
    given = template_of(spec)
    reserve = strategy.adaptive is not None and strategy.adaptive.reserve_unschedulable_pods
    if reserve and given is not None and given[0] in (STATEFUL_SET, ADVANCED_STATEFUL_SET):
        at = SPEC.child("topology", "scheduleStrategy", "adaptive", "reserveUnschedulablePods")
        errors.append(invalid(at, True, "stateful workloads cannot reserve Pods"))
    return errors


def _update_errors(spec: UnitedDeploymentSpec) -> list[FieldError]:
    """Return errors in the update strategy. [UD-15]"""
    strategy = spec.update_strategy
    if strategy is None:
        return []
    errors = []
    if strategy.type not in ("", MANUAL):
        errors.append(not_supported(SPEC.child("updateStrategy", "type"), strategy.type, [MANUAL]))
    partitions = spec.partitions
    known = {one.name for one in spec.subsets}
    shown = GoLiteral(
        f"map[string]int32{{{', '.join(f'{quote(key)}:{partitions[key]}' for key in sorted(partitions))}}}"
    )
    at = SPEC.child("updateStrategy", "manualUpdate", "partitions")
    errors += [invalid(at, shown, f"subset {name} does not exist") for name in sorted(partitions) if name not in known]
    return errors


def _immutable_template_errors(new: UnitedDeploymentSpec, old: UnitedDeploymentSpec) -> list[FieldError]:
    """Return errors for changes to immutable fields of the workload template. [UD-17]"""
    now, then = template_of(new), template_of(old)
    if now is None or then is None or now[0] != then[0] or now[0] not in _MUTABLE:
        return []
    mutable = _MUTABLE[now[0]]

    def kept(workload: Mapping[str, Any]) -> dict[str, Any]:
        body = {key: value for key, value in (workload.get("spec") or {}).items() if key not in mutable}
        printed = as_printed({"spec": {"template": {now[0]: {"spec": body}}}})["spec"]["template"][now[0]]["spec"]
        return {key: value for key, value in printed.items() if key not in mutable}

    try:
        if same(kept(now[1]), kept(then[1])):
            return []
    except GoTypeError:
        return []  # the stored object cannot be read; an update may fix it
    fields = ", ".join(f"'{field}'" for field in mutable[:-1])
    at = TEMPLATE.child(now[0], "spec")
    return [forbidden(at, f"updates to the spec for fields other than {fields} are forbidden.")]


def _go_share(share: Share | None) -> GoLiteral:
    number, text, kind = (share, "", 0) if isinstance(share, int) else (0, share or "", 1)
    return GoLiteral(f"intstr.IntOrString{{Type:{kind}, IntVal:{number}, StrVal:{quote(text)}}}")


def _labels(obj: Mapping[str, Any]) -> dict[str, str]:
    labels = as_object(as_object(obj.get("metadata")).get("labels"))
    return {key: str(value) for key, value in labels.items()}
