"""Validation that workloads share: templates, selectors, update strategies and claim templates. Pure."""

from __future__ import annotations

import re
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
)
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

# What admission refuses of every workload: selectors that match nothing, templates that no Pod of it can have. Pure.
#
# Texts, paths and their order are OpenKruise's.

SPEC: Final = Path("spec")
#: Characters of a name that becomes a label of every Pod, with a dash and a revision's hash of at most 10 behind it.
LONGEST_NAME: Final = LABEL_VALUE_MAX_LENGTH - 1 - 10
NOT_NEGATIVE: Final = "must be greater than or equal to 0"
HOLDS_NOTHING: Final = "has neither labelsHandler nor finalizersHandler, so it holds no Pod"
_IMAGE: Final = re.compile(r"/containers/[0-9]+/image").fullmatch
_INIT_IMAGE: Final = re.compile(r"/initContainers/(\d+)/image").fullmatch
_RESOURCE: Final = re.compile(r"/containers/[0-9]+/resources/(limits|requests)/(cpu|memory)").fullmatch


def metadata_errors(
    metadata: Mapping[str, Any], rule: Callable[[str], list[str]] = is_dns1123_subdomain
) -> list[FieldError]:
    """Of the name, as far as it matters to whoever is no API server, which has checked all of it before. ``rule``: what
    is wrong with a text as a name."""
    name, path = str(metadata.get("name") or ""), Path("metadata").child("name")
    if not name:
        return [] if metadata.get("generateName") else [required(path, "name or generateName is required")]
    return [invalid(path, name, message) for message in rule(name)]


def positive_count_errors(value: int | str, path: Path) -> Iterator[FieldError]:
    """A number or a percentage that comes to at least 1 of 1, in the words of Kubernetes."""
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
    """A selector that demands something, is valid, and matches the template. ``kind``: as OpenKruise calls it here."""
    path = SPEC.child("selector")
    if spec.get("selector") is None:
        return [required(path, "")]
    # OpenKruise sees the object after Go has left out what is empty.
    selector = without_empties(spec["selector"])
    errors = validate_selector(selector, path)
    if not selector:
        errors.append(invalid(path, go_label_selector(selector), f"empty selector is invalid for {kind}"))
    try:
        compiled = compile_selector(selector)
    except SelectorError:
        return [*errors, invalid(path, go_label_selector(selector))]
    labels = (_object(spec.get("template")).get("metadata") or {}).get("labels")
    if selector and not compiled.matches(labels or {}):
        at = SPEC.child("template", "metadata", "labels")
        errors.append(invalid(at, GoLiteral(go_string_map(labels)), "`selector` does not match template `labels`"))
    return errors


def hooks(spec: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The lifecycle hooks of a spec, each with its path."""
    for moment, hook in (spec.get("lifecycle") or {}).items():
        if isinstance(hook, Mapping):
            yield SPEC.child("lifecycle", moment), hook


def holds_nothing(hook: Mapping[str, Any]) -> bool:
    """Whether a hook names neither labels nor finalizers."""
    return not hook.get("finalizersHandler") and not hook.get("labelsHandler")


def hook_errors(hook: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Finalizers and labels of a hook that no Pod can have."""
    for index, name in enumerate(hook.get("finalizersHandler") or ()):
        at = path.child("finalizersHandler").index(index)
        yield from (invalid(at, name, message) for message in is_qualified_name(name))
    for key, value in sorted((hook.get("labelsHandler") or {}).items()):
        at = path.child("labelsHandler")
        yield from (invalid(at, key, message) for message in is_qualified_name(key))
        yield from (invalid(at.key(key), value, message) for message in is_label_value(value))


def where_policies_stand(kind: object) -> str:
    """The way out for who wrote an update policy as the strategy's type, as v1alpha1 has it; '' for others."""
    if kind not in POD_UPDATE_POLICIES:
        return ""
    return f"; {kind} is a policy: set updateStrategy.rollingUpdate.podUpdatePolicy: {kind}"


def template_errors(spec: Mapping[str, Any], kind: str) -> Iterable[FieldError]:
    """What a Pod may have, but none of this workload. ``kind``: as OpenKruise calls it here."""
    pod, path = template_spec(spec), SPEC.child("template", "spec")
    if pod.get("restartPolicy") not in (None, "", "Always"):
        yield not_supported(path.child("restartPolicy"), pod["restartPolicy"], ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        yield forbidden(path.child("activeDeadlineSeconds"), f"activeDeadlineSeconds in {kind} is not Supported")


def in_place_only_errors(
    spec: Mapping[str, Any], former: Mapping[str, Any], *, vertical_scaling: bool = False
) -> list[FieldError]:
    """What is updated in place only, gets new images only: the first change of something else. ``vertical_scaling``:
    also new resources, if Pods can get them in place."""
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
            return [forbidden(SPEC, f"only what can be updated in a running Pod for {IN_PLACE_ONLY}: {wanted}")]
    return []


def _is_sidecar_image(path: str, *specs: Mapping[str, Any]) -> bool:
    """Return whether the path is that of a native sidecar's image. [PM-12]"""
    found = _INIT_IMAGE(path)
    if found is None:
        return False
    index = int(found[1])
    return all(template_spec(spec)["initContainers"][index].get("restartPolicy") == "Always" for spec in specs)


def without_empties(selector: Mapping[str, Any]) -> dict[str, Any]:
    """A selector as Go prints it."""
    kept = {key: value for key, value in selector.items() if value}
    if "matchExpressions" in kept:
        kept["matchExpressions"] = [{key: item[key] for key in item if item[key]} for item in kept["matchExpressions"]]
    return kept


def template_spec(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of the Pod template."""
    return _object(_object(spec.get("template")).get("spec"))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


CLAIM_TEMPLATES: Final = SPEC.child("volumeClaimTemplates")


def claims_without_spec(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Claim templates that no API server makes a claim from: OpenKruise admits them, and never has a Pod."""
    templates = spec.get("volumeClaimTemplates")
    for index, template in enumerate(templates if isinstance(templates, list) else ()):
        claim = _claim(template)[1]
        if not claim.get("accessModes") and not claim.get("resources"):
            at = CLAIM_TEMPLATES.index(index).child("spec")
            yield required(at, "a claim needs accessModes and resources.requests.storage")


def repeated_claims(spec: Mapping[str, Any]) -> Iterator[str]:
    """A warning for each name that several claim templates have."""
    claims = [name for name, _ in map(_claim, spec.get("volumeClaimTemplates") or ())]
    for name in sorted({name for name in claims if claims.count(name) > 1}):
        yield f"{CLAIM_TEMPLATES}: {quote(name)} stands there more than once"


def claim_change_errors(
    spec: Mapping[str, Any], former: Mapping[str, Any], expandable: Mapping[str, bool | None]
) -> Iterator[FieldError]:
    """AS-30, AS-31: of claims that grow only sizes may change, and only where the storage class lets them.

    ``expandable``: whether a storage class lets claims grow, by its name ("": the default class); None: it is not
    there; absent: nobody could be asked.
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
                    f"storage class {quote(called)} is not there"
                    if missing
                    else f"its storage class does not let the claims of {name} grow (allowVolumeExpansion)"
                )
                yield forbidden(at.child("spec", "resources"), words)


def _claim(template: Any) -> tuple[str, Mapping[str, Any]]:
    """The name and the spec of a template."""
    found = template if isinstance(template, Mapping) else {}
    metadata, spec = (one if isinstance(one := found.get(part), Mapping) else {} for part in ("metadata", "spec"))
    return str(metadata.get("name") or ""), spec
