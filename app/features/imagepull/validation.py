"""Validation of ImagePullJob, ImageListPullJob and NodeImage. [IMG-7 … IMG-12]

Pure functions of a defaulted spec. Errors name the field and use OpenKruise's wording.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from app.features.imagepull.defaults import TIMEOUT_SECONDS
from app.features.imagepull.types import ALWAYS, COMPLETION_TYPES, IMAGE_PULL_POLICIES, NEVER
from app.kube.fielderrors import (
    FieldError,
    Path,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    quote,
    required,
    too_many,
)
from app.kube.images import FamiliarImage, familiar_image, image_error
from app.kube.jsonvalues import json_size
from app.kube.selectors import validate_selector

MAX_IMAGES: Final = 255
MAX_NODE_IMAGES: Final = 256
#: Maximum total size in bytes of the ImagePullJobs of an ImageListPullJob, each of which has a copy of its selector.
#: Enough for 50 images on 16,000 named nodes.
MAX_LIST_BYTES: Final = 16 * 1024 * 1024
#: Limits of a job's sandboxConfig (bytes) and pullSecrets. Both are copied to every NodeImage. Jobs of all namespaces
#: share a NodeImage, whose size the API server limits to 1.5 MB.
MAX_SANDBOX_BYTES: Final = 32 * 1024
MAX_PULL_SECRETS: Final = 64
_MAX_WARNINGS: Final = 10
_SPEC: Final = Path("spec")
_INT64: Final = range(-(2**63), 2**63)
_MAX_DIGITS: Final = 30


def job_errors(spec: Mapping[str, Any], former: Mapping[str, Any] | None = None) -> list[FieldError]:
    """Return the errors in the spec of an ImagePullJob. ``former`` is the spec it replaces."""
    errors = _selector_errors(spec)
    errors += _image_errors(spec.get("image") or "", _SPEC.child("image"))
    errors += _parallelism_errors(spec.get("parallelism"))
    errors += _completion_errors(spec)
    errors += _deadline_errors(spec)
    errors += _shared_errors(spec)
    if former is not None and spec.get("pullSecrets") != former.get("pullSecrets"):
        # Order matters, and OpenKruise distinguishes an empty list from a missing one. [IMG-10]
        errors.append(forbidden(_SPEC.child("pullSecrets"), "spec.pullSecrets is immutable"))
    return errors


def list_job_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors in the spec of an ImageListPullJob. [IMG-11]"""
    errors = _selector_errors(spec)
    images, path = spec.get("images") or [], _SPEC.child("images")
    if not images:
        errors.append(required(path, "image can not be empty"))
    if len(images) > MAX_IMAGES:
        # Checking each image could produce one error per image.
        return [*errors, too_many(path, len(images), MAX_IMAGES)]
    size = len(images) * json_size({key: value for key, value in spec.items() if key != "images"})
    if size > MAX_LIST_BYTES:
        detail = f"the ImagePullJobs would total {size} bytes, more than {MAX_LIST_BYTES}: select nodes by label"
        errors.append(invalid(path, len(images), detail))
    if len(set(images)) < len(images):
        errors.append(invalid(path, _first_repeated(images), "images cannot have duplicate values"))
    for index, image in enumerate(images):
        errors += _image_errors(image, path.index(index))
    errors += _parallelism_errors(spec.get("parallelism"))
    errors += _completion_errors(spec)
    return errors + _shared_errors(spec)


def job_warnings(spec: Mapping[str, Any]) -> list[str]:
    """Return warnings for values in a job's spec (of either kind) that are accepted but have no effect."""
    warnings = []
    policy = spec.get("imagePullPolicy")
    if policy and policy not in IMAGE_PULL_POLICIES:
        warnings.append(
            f"spec.imagePullPolicy: {quote(policy)} is unknown and treated as Always; use Always or IfNotPresent"
        )
    if isinstance(spec.get("images"), list) and _deadline_errors(spec):
        warnings.append(
            "spec.completionPolicy.activeDeadlineSeconds: less than spec.pullPolicy.timeoutSeconds; no ImagePullJob "
            "can be created until this is corrected"
        )
    return warnings


def node_image_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors in the spec of a NodeImage. [IMG-12]"""
    images, path = spec.get("images") or {}, _SPEC.child("images")
    if len(images) > MAX_NODE_IMAGES:
        return [too_many(path, len(images), MAX_NODE_IMAGES)]
    errors = []
    for name, image in images.items():
        if not name:
            errors.append(required(path.key(name), "image name can not be empty"))
        errors += _tags_errors(name, image.get("tags") or [], path.key(name).child("tags"))
    return errors


def node_image_warnings(spec: Mapping[str, Any], former: Mapping[str, Any] | None) -> list[str]:
    """Return warnings for new NodeImage entries that cannot be pulled or are not recognized once pulled. [IMG-112]"""
    before = (former or {}).get("images") or {}
    warnings: list[str] = []
    for name, image in (spec.get("images") or {}).items():
        path = _SPEC.child("images").key(name)
        known = {tag.get("tag") for tag in (before.get(name) or {}).get("tags") or ()}
        for index, tag in enumerate(image.get("tags") or ()):
            if tag.get("tag") in known or len(warnings) == _MAX_WARNINGS:
                continue
            reference = str(FamiliarImage(name, tag.get("tag") or ""))
            found = familiar_image(reference)
            if found is None:
                warnings.append(f"{path.child('tags').index(index)}: {quote(reference)} is not an image reference")
            elif found.name != name:
                warnings.append(
                    f"{path}: use {quote(found.name)} instead; otherwise nodes pull the image even if they have it"
                )
                break
    return warnings


def _tags_errors(name: str, tags: list[Mapping[str, Any]], path: Path) -> list[FieldError]:
    errors: list[FieldError] = []
    seen = set()
    for index, tag in enumerate(tags):
        at, text = path.index(index), tag.get("tag") or ""
        if not text:
            errors.append(required(at.child("tag"), f"tag for {name} can not be empty"))
        if text in seen:
            errors.append(duplicate(at.child("tag"), text))
        seen.add(text)
        if not tag.get("createdAt"):
            errors.append(required(at.child("createdAt"), f"createdAt for {name}/{text} can not be empty"))
        if (tag.get("version") or 0) < 0:
            errors.append(invalid(at.child("version"), tag["version"], "must be greater than or equal to 0"))
        policy = tag.get("pullPolicy")
        if policy is None:
            errors.append(required(at.child("pullPolicy"), f"pullPolicy for {name}/{text} can not be empty"))
        elif policy.get("ttlSecondsAfterFinished") is None:
            detail = f"pullPolicy.ttlSecondsAfterFinished for {name}/{text} must set"
            errors.append(required(at.child("pullPolicy", "ttlSecondsAfterFinished"), detail))
    return errors


def _selector_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors in selector and podSelector, which select nodes by name, by label or by Pods. [IMG-7]"""
    selector, pod_selector, path = spec.get("selector"), spec.get("podSelector"), _SPEC.child("selector")
    errors = []
    if selector is not None and pod_selector is not None:
        errors.append(forbidden(_SPEC.child("podSelector"), "can not set both selector and podSelector"))
    if selector is not None:
        chosen = selector.get("names") or []
        by_label = selector.get("matchLabels") is not None or selector.get("matchExpressions") is not None
        if selector.get("names") is not None and by_label:
            errors.append(forbidden(path, "can not set both names and labelSelector in this spec.selector"))
        if len(set(chosen)) < len(chosen):
            errors.append(duplicate(path.child("names"), _first_repeated(chosen)))
        errors += validate_selector({key: value for key, value in selector.items() if key != "names"}, path)
    return errors + validate_selector(pod_selector, _SPEC.child("podSelector"))


def _shared_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors in the fields that ImagePullJobs and ImageListPullJobs share. [IMG-110]"""
    errors = []
    size = len(orjson.dumps(spec.get("sandboxConfig") or {}))
    if size > MAX_SANDBOX_BYTES:
        errors.append(invalid(_SPEC.child("sandboxConfig"), size, f"must have at most {MAX_SANDBOX_BYTES} bytes"))
    if (count := len(spec.get("pullSecrets") or ())) > MAX_PULL_SECRETS:
        errors.append(too_many(_SPEC.child("pullSecrets"), count, MAX_PULL_SECRETS))
    return errors


def _first_repeated(values: list[str]) -> str:
    seen: set[str] = set()
    return next(value for value in values if value in seen or seen.add(value))  # type: ignore[func-returns-value]


def _image_errors(image: str, path: Path) -> list[FieldError]:
    if not image:
        return [required(path, "image can not be empty")]
    error = image_error(image)
    return [invalid(path, image, f"invalid image {image}: {error}")] if error else []


def _parallelism_errors(value: int | str | None) -> list[FieldError]:
    """Return the errors in parallelism: an integer, or a string that contains one. [IMG-8]"""
    if value is None:
        return []
    path = _SPEC.child("parallelism")
    if isinstance(value, str):
        if value.endswith("%"):
            return [invalid(path, value, "parallelism does not support percentage value")]
        digits = value[1:] if value[:1] in ("+", "-") else value
        is_number = digits.isascii() and digits.isdigit()
        if not is_number or len(digits) > _MAX_DIGITS or int(value) not in _INT64:
            why = "value out of range" if is_number else "invalid syntax"
            shown = f"strconv.ParseInt: parsing {quote(value)}: {why}"
            return [invalid(path, value, f"parallelism must be a valid integer: {shown}")]
        value = int(value)
    return [invalid(path, value, "parallelism must be non-negative")] if value < 0 else []


def _completion_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors in completionPolicy. [IMG-9]"""
    policy, path = spec.get("completionPolicy") or {}, _SPEC.child("completionPolicy")
    kind = policy.get("type") or ""
    if kind not in COMPLETION_TYPES:
        error = not_supported(path.child("type"), kind, COMPLETION_TYPES)
        return [FieldError(error.type, error.field, kind, f"unknown type of completionPolicy: {kind}; {error.detail}")]
    fields = ("activeDeadlineSeconds", "ttlSecondsAfterFinished")
    if kind == NEVER and any(policy.get(field) is not None for field in fields):
        detail = "activeDeadlineSeconds and ttlSecondsAfterFinished can only work with Always CompletionPolicyType"
        return [forbidden(path, detail)]
    return []


def _deadline_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return an error if the deadline leaves no time for one pull attempt. [IMG-9]"""
    policy = spec.get("completionPolicy") or {}
    deadline = policy.get("activeDeadlineSeconds")
    timeout = (spec.get("pullPolicy") or {}).get("timeoutSeconds")
    if policy.get("type") != ALWAYS or deadline is None:
        return []
    if deadline >= (TIMEOUT_SECONDS if timeout is None else timeout):
        return []
    detail = "completionPolicy.activeDeadlineSeconds must be greater than pullPolicy.timeoutSeconds(default 600)"
    return [invalid(_SPEC.child("completionPolicy", "activeDeadlineSeconds"), deadline, detail)]
