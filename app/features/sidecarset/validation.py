"""Validation of SidecarSets, and the whitelist of annotations that they may write to Pods."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.core.env import field_ref_errors
from app.api.fields import priority_error, scatter_error
from app.features.sidecarset.injection.resources import policy_errors
from app.features.sidecarset.types import (
    NOT_UPDATE,
    POD_INJECT_POLICIES,
    REVISION_POLICIES,
    ROLLING_UPDATE,
    SHARE_TYPES,
    InjectRevision,
    PatchPodMetadata,
    SidecarContainer,
    SidecarSet,
    TransferEnvVar,
    UpdateStrategy,
)
from app.kube.fielderrors import (
    FieldError,
    GoLiteral,
    Path,
    forbidden,
    go_int_or_string,
    invalid,
    not_supported,
    quote,
    required,
)
from app.kube.objects import ControllerRevision
from app.kube.regex import Pattern, PatternError, compile_re2
from app.kube.selector_query import SelectorError
from app.kube.selectors import compile_selector, go_label_selector, validate_selector
from app.kube.validation import is_percent, max_len_message, regex_message, validate_annotations, validate_labels
from app.pods.custom_workloads import WhitelistError, member
from app.workloads.validation import without_empties

# Validation of a single SidecarSet [SS-16 … SS-25, SS-27]. Messages and their order are OpenKruise's. Conflicts with
# the former state and with other sets, and rules that OpenKruise lacks, are in
# :mod:`app.features.sidecarset.conflicts`.

NAME_LIMIT: Final = 63
_NAME: Final = r"^[a-zA-Z0-9\-]+$"
_NAME_MESSAGE: Final = "sidecarset name must consist of alphanumeric characters or '-'"
SPEC: Final = Path("spec")
#: Appended to OpenKruise's message.
NATIVE_SIDECARS_WAY_OUT: Final = f" Set updateStrategy.type: {NOT_UPDATE}; then only new Pods get native sidecars"


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that validation needs, looked up in advance."""

    #: Kubernetes' errors for the containers and volumes, with their paths in the SidecarSet. [SS-21]
    template_errors: Sequence[FieldError | str] = ()
    #: Whether ``revision`` was looked up. If so, None means that it does not exist. [SS-26]
    revision_asked: bool = False
    revision: ControllerRevision | None = None
    #: Why the whitelist does not allow the set's patchPodMetadata, or "". [SS-31]
    metadata_refusal: str = ""


def set_errors(sidecar_set: SidecarSet, facts: Facts) -> list[FieldError | str]:
    """Return every error in the (defaulted) set, in OpenKruise's order."""
    spec = sidecar_set.spec
    errors: list[FieldError | str] = [*metadata_errors(sidecar_set)]
    if spec.update_strategy.type == ROLLING_UPDATE and any(c.keeps_running for c in spec.init_containers or ()):
        # [SS-19]
        detail = f"The initContainer in-place upgrade is not currently supported.{NATIVE_SIDECARS_WAY_OUT}"
        errors.append(required(SPEC.child("updateStrategy"), detail))
    # [SS-17]
    if spec.selector is None:
        errors.append(required(SPEC.child("selector"), "no selector defined for SidecarSet"))
    else:
        errors += selector_errors(spec.selector, SPEC.child("selector"))
    if spec.namespace_selector is not None:
        errors += selector_errors(spec.namespace_selector, SPEC.child("namespaceSelector"))
    if spec.injection_strategy.revision is not None:
        errors += revision_errors(sidecar_set, spec.injection_strategy.revision, facts)
    errors += update_strategy_errors(spec.update_strategy, SPEC.child("updateStrategy"))
    if spec.all_containers:
        errors += _container_errors(spec.init_containers or (), spec.containers or ())
        errors += facts.template_errors
    else:
        # [SS-18]
        errors.append(required(SPEC, "no initContainer or container defined for SidecarSet"))
    errors += patch_errors(spec.patch_pod_metadata or (), SPEC.child("patchPodMetadata"))
    if facts.metadata_refusal:
        errors.append(forbidden(SPEC.child("patchPodMetadata"), facts.metadata_refusal))
    return errors


def metadata_errors(sidecar_set: SidecarSet) -> Iterator[FieldError]:
    """Check the metadata, because sets from files have not passed the API server's checks. [SS-16]"""
    metadata, path = sidecar_set.metadata, Path("metadata")
    name = metadata.name
    if not name:
        yield required(path.child("name"), "name or generateName is required")
    elif re.fullmatch(_NAME, name) is None:
        yield invalid(path.child("name"), name, regex_message(_NAME_MESSAGE, _NAME, "example-com"))
    if len(name) > NAME_LIMIT:
        yield invalid(path.child("name"), name, max_len_message(NAME_LIMIT))
    if metadata.namespace:
        yield forbidden(path.child("namespace"), "not allowed on this type")
    yield from validate_labels(metadata.labels, path.child("labels"))
    yield from validate_annotations(metadata.annotations, path.child("annotations"))


def selector_errors(selector: Mapping[str, Any], path: Path) -> list[FieldError]:
    """Require a valid selector with at least one requirement. [SS-17]"""
    # OpenKruise sees the object after Go has omitted empty fields.
    selector = without_empties(selector)
    errors = validate_selector(selector, path)
    if not selector:
        errors.append(invalid(path, go_label_selector(selector), "empty selector is not valid for sidecarset."))
    try:
        compile_selector(selector)
    except SelectorError:
        errors.append(invalid(path.child("selector"), go_label_selector(selector)))
    return errors


def asks_for_revision(sidecar_set: SidecarSet, older: SidecarSet | None) -> bool:
    """Return whether the set names a new revision to inject, which must be looked up. [SS-26]"""
    named = _named_revision(sidecar_set)
    return any(named) and (older is None or named != _named_revision(older))


def _named_revision(sidecar_set: SidecarSet) -> tuple[str, str]:
    revision = sidecar_set.spec.injection_strategy.revision
    return ((revision.revision_name or ""), (revision.custom_version or "")) if revision is not None else ("", "")


def revision_errors(sidecar_set: SidecarSet, revision: InjectRevision, facts: Facts) -> Iterator[FieldError]:
    """Require that one of the names is set and refers to an existing revision. [SS-26]"""
    path = Path("revision")
    if not (revision.revision_name or revision.custom_version):
        shown = GoLiteral(
            "v1beta1.SidecarSetInjectRevision{CustomVersion:(*string)(nil), RevisionName:(*string)(nil), "
            f"Policy:{quote(revision.policy)}}}"
        )
        yield invalid(path, shown, "revisionName and customVersion cannot be empty simultaneously")
    elif facts.revision_asked and facts.revision is None:
        name = revision.revision_name or sidecar_set.name
        detail = f'Cannot find specific ControllerRevision, err: ControllerRevision.apps "{name}" not found'
        yield invalid(path, None, detail)
    elif facts.revision is not None:
        # Otherwise, the content of another set would be recorded as this set's. [SS-34]
        owner = facts.revision.metadata.labels.get(names.SIDECARSET_NAME, "")
        if owner != sidecar_set.name:
            at = SPEC.child("injectionStrategy", "revision", "revisionName")
            whose = f"belongs to SidecarSet {owner}" if owner else "does not belong to a SidecarSet"
            yield invalid(at, facts.revision.metadata.name, f"the ControllerRevision {whose}")
    if revision.policy not in ("", *REVISION_POLICIES):
        at = SPEC.child("injectionStrategy", "revision", "policy")
        yield not_supported(at, revision.policy, REVISION_POLICIES)


def update_strategy_errors(strategy: UpdateStrategy, path: Path) -> Iterator[FieldError]:
    """Validate the fields that RollingUpdate uses. [SS-24, SS-25]"""
    if strategy.type != ROLLING_UPDATE:
        return
    if strategy.selector is not None:
        if strategy.partition not in (None, 0):
            yield forbidden(path, "Partition and Selector cannot be used together")
        yield from selector_errors(strategy.selector, path.child("selector"))
    yield from _count_errors(strategy.partition, path.child("partition"))
    yield from _count_errors(strategy.max_unavailable, path.child("maxUnavailable"))
    priority, scatter = strategy.priority_strategy, strategy.scatter_strategy
    if reason := priority_error(priority.to_dict() if priority is not None else None):
        yield required(path.child("priorityStrategy"), reason)
    if reason := scatter_error([term.to_dict() for term in scatter or ()]):
        yield required(path.child("scatterStrategy"), reason)


def _count_errors(value: int | str | None, path: Path) -> list[FieldError]:
    """Require a non-negative number or percentage."""
    if isinstance(value, str):
        return [invalid(path, go_int_or_string(value), message) for message in is_percent(value)]
    return [invalid(path, value, "must be greater than or equal to 0")] if value is not None and value < 0 else []


def _container_errors(
    init_containers: Sequence[SidecarContainer], containers: Sequence[SidecarContainer]
) -> Iterator[FieldError]:
    for index, container in enumerate(init_containers):
        yield from _resources_errors(container, index)
        if container.resources_policy is not None and not container.keeps_running:
            # [SS-23]
            at = SPEC.child("initContainers").index(index).child("resourcesPolicy")
            yield forbidden(at, "may only be set for init containers with restartPolicy Always")
    for index, container in enumerate(containers):
        yield from _policy_word_errors(container, SPEC.child("containers").index(index))
        yield from transfer_errors(container.transfer_env or (), SPEC.child("containers").index(index))
        yield from _resources_errors(container, index)


def _policy_word_errors(container: SidecarContainer, path: Path) -> Iterator[FieldError]:
    """Validate podInjectPolicy and shareVolumePolicy. Messages are OpenKruise's, plus the index and the valid values.
    [SS-20]"""
    if container.pod_inject_policy not in POD_INJECT_POLICIES:
        words = f"unsupported pod inject policy; choose one of: {', '.join(POD_INJECT_POLICIES)}"
        yield invalid(path.child("podInjectPolicy"), container.pod_inject_policy, words)
    if container.share_volume_policy.type not in SHARE_TYPES:
        shown = GoLiteral(f"v1beta1.ShareVolumePolicy{{Type:{quote(container.share_volume_policy.type)}}}")
        words = f"unsupported share volume policy; choose one of: {', '.join(SHARE_TYPES)}"
        yield invalid(path.child("shareVolumePolicy"), shown, words)


def transfer_errors(entries: Iterable[TransferEnvVar], path: Path) -> Iterator[FieldError]:
    """Require source container names to come from labels or annotations. ``path`` is that of the container. [SS-22]"""
    for index, entry in enumerate(entries):
        source = entry.source_container_name_from
        if source is not None and source.field_ref is not None:
            at = path.child("transferEnv").index(index).child("sourceContainerNameFrom", "fieldRef")
            yield from field_ref_errors(source.field_ref.to_dict(), (), at)


def _resources_errors(container: SidecarContainer, index: int) -> Iterator[FieldError]:
    """Validate the resourcesPolicy. Like OpenKruise, report its path as ``spec[index].resourcesPolicy``. [SS-23]"""
    if container.resources_policy is None:
        return
    path = SPEC.index(index).child("resourcesPolicy")
    yield from policy_errors(container.resources_policy.to_dict(), path)
    own = container.core.get("resources") or {}
    if own.get("limits") or own.get("requests"):
        detail = f"container {container.name}: cannot be combined with resources.limits or requests"
        yield forbidden(path, detail)


def patch_errors(patches: Iterable[PatchPodMetadata], path: Path) -> Iterator[FieldError]:
    """Require annotations in each entry, and reject keys that appear in two entries. [SS-27]"""
    seen: set[str] = set()
    for index, patch in enumerate(patches):
        annotations = patch.annotations or {}
        if not annotations:
            yield required(path, "no annotations defined for SidecarSet")
        yield from validate_annotations(annotations, path.index(index).child("annotations"))
        yield from [
            required(path, f"patch annotation[{key}] already exist") for key in sorted(annotations) if key in seen
        ]
        seen.update(annotations)


# Annotations that SidecarSets may write to Pods: the administrator's whitelist. [SS-31, MGR-80]

_WHERE = f"ConfigMap {names.CONFIGURATION_CONFIG_MAP}, key {names.PATCH_POD_METADATA_WHITELIST_KEY}"


def refusal(text: str | None, labels: Mapping[str, str], keys: Iterable[str], *, defaults_allowed: bool) -> str:
    """Return why a set with these labels may not patch these annotations, or "".

    ``text`` is the whitelist in the ConfigMap; None or empty if there is none. ``defaults_allowed`` is the gate
    SidecarSetPatchPodMetadataDefaultsAllowed, which decides only if no rule applies to the set.
    """
    keys = sorted(keys)
    if not keys:
        return ""
    if not text:
        return "" if defaults_allowed else f"SidecarSet patch metadata whitelist not found: {_WHERE}"
    try:
        patterns = allowed(text, labels)
    except WhitelistError as error:
        return str(error)
    if not patterns:
        reason = f"sidecarSet patch metadata annotation is not allowed: no rule for this set in {_WHERE}"
        return "" if defaults_allowed else reason
    for key in keys:
        if not any(pattern.search(key) for pattern in patterns):
            return f"sidecarSet patch metadata annotation({key}) is not allowed by {_WHERE}"
    return ""


def allowed(text: str, labels: Mapping[str, str]) -> list[Pattern]:
    """Return the patterns of all rules that apply to a set with these labels. Raises :class:`WhitelistError`."""
    patterns: list[Pattern] = []
    for index, rule in enumerate(_rules(text)):
        selector, expressions = member(rule, "selector"), member(rule, "allowedAnnotationKeyExprs") or []
        if not isinstance(expressions, list) or not isinstance(selector, dict | None):
            raise WhitelistError(f"{_WHERE}: rules[{index}]: the selector must be an object, the expressions a list")
        try:
            if selector is not None and not compile_selector(selector).matches(labels):
                continue
            patterns += map(compile_re2, map(_text, expressions))
        except (SelectorError, PatternError) as error:
            raise WhitelistError(f"{_WHERE}: rules[{index}]: {error}") from error
    return patterns


def _rules(text: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WhitelistError(f"{_WHERE}: not JSON: {error}") from error
    rules = member(document, "rules") if isinstance(document, dict) else False
    if rules is None:
        return []
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise WhitelistError(f'{_WHERE}: expected an object {{"rules": [...]}}')
    return rules


def _text(expression: Any) -> str:
    if not isinstance(expression, str):
        raise PatternError(f"allowedAnnotationKeyExprs: {expression!r} is not a string")
    return expression
