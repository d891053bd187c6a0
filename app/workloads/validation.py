"""Validation shared by workloads: templates, selectors, update strategies and claim templates. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from app.api.fields import IN_PLACE_ONLY, ON_POD_ROLLING_UPDATE, POD_UPDATE_POLICIES
from app.kube.fielderrors import (
    FieldError,
    GoLiteral,
    Path,
    forbidden,
    go_int_or_string,
    go_string_map,
    invalid,
    not_supported,
    quote,
    required,
    too_many,
)
from app.kube.jsonvalues import as_object
from app.kube.patches import diff, same
from app.kube.selector_query import SelectorError
from app.kube.selectors import compile_selector, go_label_selector, validate_selector
from app.kube.validation import (
    LABEL_VALUE_MAX_LENGTH,
    is_dns1123_subdomain,
    is_label_value,
    is_percent,
    is_qualified_name,
)
from app.pods.inplace.eligibility import Blocked, InPlaceOptions, update_spec
from app.pods.revisions import Revision, template_data

# Checks for every workload kind: reject selectors that match nothing and templates that the kind does not support.
# Messages, paths and their order are OpenKruise's.

SPEC: Final = Path("spec")
#: Maximum length of a workload's name. Every Pod has a label whose value is the name, a dash and a revision hash of up
#: to 10 characters.
LONGEST_NAME: Final = LABEL_VALUE_MAX_LENGTH - 1 - 10
NOT_NEGATIVE: Final = "must be greater than or equal to 0"
HOLDS_NOTHING: Final = "has neither labelsHandler nor finalizersHandler, so it has no effect"
_IMAGE: Final = re.compile(r"/containers/[0-9]+/image").fullmatch
_INIT_IMAGE: Final = re.compile(r"/initContainers/(\d+)/image").fullmatch
_RESOURCE: Final = re.compile(r"/containers/[0-9]+/resources/(limits|requests)/(cpu|memory)").fullmatch


def metadata_errors(
    metadata: Mapping[str, Any], rule: Callable[[str], list[str]] = is_dns1123_subdomain
) -> list[FieldError]:
    """Validate the name for callers other than the API server, which has already checked it. ``rule`` returns what is
    wrong with a name."""
    name, path = str(metadata.get("name") or ""), Path("metadata").child("name")
    if not name:
        return [] if metadata.get("generateName") else [required(path, "name or generateName is required")]
    return [invalid(path, name, message) for message in rule(name)]


def positive_count_errors(value: int | str, path: Path) -> Iterator[FieldError]:
    """Require a number of at least 1 or a percentage of at least 1%. The messages are those of Kubernetes."""
    if isinstance(value, int):
        if value < 0:
            yield invalid(path, value, NOT_NEGATIVE)
        count: int | None = value
    else:
        yield from (invalid(path, go_int_or_string(value), words) for words in is_percent(value))
        digits = value.replace("%", "")
        count = -(-int(digits) // 100) if re.fullmatch(r"[+-]?[0-9]{1,18}", digits, re.ASCII) else None
        if count is None:
            words = f"invalid value {quote(value)}: strconv.Atoi: parsing {quote(digits)}: invalid syntax"
            yield invalid(path, 0, f"getValueFromIntOrPercent error: invalid value for IntOrString: {words}")
    if count is not None and count < 1:
        yield invalid(path, count, "should not be less than 1")


def selector_errors(spec: Mapping[str, Any], kind: str) -> list[FieldError]:
    """Require a valid, non-empty selector that matches the template. ``kind`` is the name that OpenKruise's message
    uses."""
    path = SPEC.child("selector")
    if spec.get("selector") is None:
        return [required(path, "")]
    # OpenKruise validates the object after Go has dropped empty fields.
    selector = without_empties(spec["selector"])
    errors = validate_selector(selector, path)
    if not selector:
        errors.append(invalid(path, go_label_selector(selector), f"empty selector is invalid for {kind}"))
    try:
        compiled = compile_selector(selector)
    except SelectorError:
        return [*errors, invalid(path, go_label_selector(selector))]
    labels = (as_object(spec.get("template")).get("metadata") or {}).get("labels")
    if selector and not compiled.matches(labels or {}):
        at = SPEC.child("template", "metadata", "labels")
        errors.append(invalid(at, GoLiteral(go_string_map(labels)), "`selector` does not match template `labels`"))
    return errors


def hooks(spec: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the lifecycle hooks of a spec with their paths."""
    for moment, hook in (spec.get("lifecycle") or {}).items():
        if isinstance(hook, Mapping):
            yield SPEC.child("lifecycle", moment), hook


def holds_nothing(hook: Mapping[str, Any]) -> bool:
    """Return whether a hook has neither labels nor finalizers."""
    return not hook.get("finalizersHandler") and not hook.get("labelsHandler")


def hook_errors(hook: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Reject finalizers and labels that no Pod can have."""
    for index, name in enumerate(hook.get("finalizersHandler") or ()):
        at = path.child("finalizersHandler").index(index)
        yield from (invalid(at, name, message) for message in is_qualified_name(name))
    for key, value in sorted((hook.get("labelsHandler") or {}).items()):
        at = path.child("labelsHandler")
        yield from (invalid(at, key, message) for message in is_qualified_name(key))
        yield from (invalid(at.key(key), value, message) for message in is_label_value(value))


def policy_hint(kind: object) -> str:
    """Return a hint for a strategy type that is an update policy, as v1alpha1 allowed; '' for others."""
    if kind not in POD_UPDATE_POLICIES:
        return ""
    return f"; {kind} is a policy: set updateStrategy.rollingUpdate.podUpdatePolicy: {kind}"


def template_errors(spec: Mapping[str, Any], kind: str) -> Iterable[FieldError]:
    """Reject Pod fields that this workload does not support. ``kind`` is the name that OpenKruise's message uses."""
    pod, path = template_spec(spec), SPEC.child("template", "spec")
    if pod.get("restartPolicy") not in (None, "", "Always"):
        yield not_supported(path.child("restartPolicy"), pod["restartPolicy"], ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        yield forbidden(path.child("activeDeadlineSeconds"), f"activeDeadlineSeconds in {kind} is not Supported")


def in_place_only_errors(
    spec: Mapping[str, Any], former: Mapping[str, Any], *, vertical_scaling: bool = False
) -> list[FieldError]:
    """Return an error for the first change other than to images, as InPlaceOnly requires. ``vertical_scaling`` also
    allows changes to resources, if Pods can change them in place."""
    scaled, allowed = False, "images and resources" if vertical_scaling else "images"
    for change in diff(template_spec(former), template_spec(spec)):
        if change.op == "replace" and (_IMAGE(change.path) or _is_sidecar_image(change.path, former, spec)):
            continue
        if not (vertical_scaling and change.op == "replace" and _RESOURCE(change.path)):
            found = f"found {change.op} {change.path}"
            return [forbidden(SPEC, f"only allowed to update {allowed} in spec for {IN_PLACE_ONLY}, but {found}")]
        scaled = True
    if scaled:
        old, new = (Revision("", 0, template_data(one.get("template") or {})) for one in (former, spec))
        wanted = update_spec(old, new, InPlaceOptions(vertical_scaling=True))
        if isinstance(wanted, Blocked):
            return [forbidden(SPEC, f"{IN_PLACE_ONLY} allows only changes that can be made in place: {wanted}")]
    return []


def _is_sidecar_image(path: str, *specs: Mapping[str, Any]) -> bool:
    """Return whether the path is a native sidecar's image. [PM-12]"""
    found = _INIT_IMAGE(path)
    if found is None:
        return False
    index = int(found[1])
    return all(template_spec(spec)["initContainers"][index].get("restartPolicy") == "Always" for spec in specs)


def without_empties(selector: Mapping[str, Any]) -> dict[str, Any]:
    """Return the selector as Go marshals it."""
    kept = {key: value for key, value in selector.items() if value}
    if "matchExpressions" in kept:
        kept["matchExpressions"] = [{key: item[key] for key in item if item[key]} for item in kept["matchExpressions"]]
    return kept


def template_spec(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of the Pod template."""
    return as_object(as_object(spec.get("template")).get("spec"))


CLAIM_TEMPLATES: Final = SPEC.child("volumeClaimTemplates")
#: Maximum number of claim templates, which exceeds the number of volumes a node can attach. Every Pod gets a claim from
#: each template.
MAX_CLAIM_TEMPLATES: Final = 256


def claims_without_spec(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Reject claim templates that the API server cannot create claims from, and lists with more templates than a Pod
    can have volumes. OpenKruise admits both, but then never creates a Pod."""
    templates = spec.get("volumeClaimTemplates")
    if isinstance(templates, list) and len(templates) > MAX_CLAIM_TEMPLATES:
        yield too_many(CLAIM_TEMPLATES, len(templates), MAX_CLAIM_TEMPLATES)
        return
    for index, template in enumerate(templates if isinstance(templates, list) else ()):
        claim = _claim(template)[1]
        if not claim.get("accessModes") and not claim.get("resources"):
            at = CLAIM_TEMPLATES.index(index).child("spec")
            yield required(at, "a claim needs accessModes and resources.requests.storage")


def repeated_claims(spec: Mapping[str, Any]) -> Iterator[str]:
    """Warn about each name used by several claim templates."""
    claims = Counter(name for name, _ in map(_claim, spec.get("volumeClaimTemplates") or ()))
    for name in sorted(name for name, count in claims.items() if count > 1):
        yield f"{CLAIM_TEMPLATES}: {quote(name)} is used more than once"


def claim_change_errors(
    spec: Mapping[str, Any], former: Mapping[str, Any], expandable: Mapping[str, bool | None]
) -> Iterator[FieldError]:
    """Reject changes to claim templates other than to their size, and size changes if the storage class does not allow
    expansion. [AS-30, AS-31]

    ``expandable`` maps storage classes ("" is the default) to whether they allow expansion; None if the class does not
    exist. Classes that could not be read are omitted.
    """
    templates, old = ([_claim(one) for one in one_of.get("volumeClaimTemplates") or ()] for one_of in (spec, former))
    if [name for name, _ in templates] != [name for name, _ in old]:
        words = f"templates cannot be added, removed or renamed with {ON_POD_ROLLING_UPDATE}"
        yield forbidden(CLAIM_TEMPLATES, words)
        return
    for index, ((name, claim), (_, was)) in enumerate(zip(templates, old, strict=True)):
        at, class_name = CLAIM_TEMPLATES.index(index), claim.get("storageClassName")
        if class_name and was.get("storageClassName") and class_name != was["storageClassName"]:
            yield forbidden(at.child("spec", "storageClassName"), "may not be changed")
        if (claim.get("accessModes") or []) != (was.get("accessModes") or []):
            yield forbidden(at.child("spec", "accessModes"), "may not be changed")
        if not same(claim.get("resources") or {}, was.get("resources") or {}):
            called = class_name or ""
            if called in expandable and expandable[called] is not True:
                missing = expandable[called] is None
                words = (
                    f"storage class {quote(called)} does not exist"
                    if missing
                    else f"its storage class does not allow claims of {name} to be expanded (allowVolumeExpansion)"
                )
                yield forbidden(at.child("spec", "resources"), words)


def _claim(template: Any) -> tuple[str, Mapping[str, Any]]:
    found = template if isinstance(template, Mapping) else {}
    metadata, spec = (one if isinstance(one := found.get(part), Mapping) else {} for part in ("metadata", "spec"))
    return str(metadata.get("name") or ""), spec
