"""The ImagePullJobs of an ImageListPullJob, and its progress. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.api import names
from app.features.imagepull.defaults import job_with_defaults
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB
from app.features.imagepull.types import NEVER, ImageListPullJob, ImagePullJob
from app.kube.clock import rfc3339
from app.kube.hashes import ALPHABET, fnv32a, safe_encode
from app.pods.predicates import Owner

# The template of an ImageListPullJob as OpenKruise formats it for hashing: every field with its Go type. Each job of
# the list has the hash as a label; OpenKruise replaces jobs with a different hash.

_PACKAGE: Final = "v1beta1"


def shown_template(template: Mapping[str, Any]) -> str:
    """Return the text that OpenKruise hashes for these fields of a spec (JSON). [IMG-70]"""
    selector, pods = template.get("selector"), template.get("podSelector")
    sandbox, policy = template.get("sandboxConfig"), template.get("pullPolicy")
    completion = template.get("completionPolicy") or {}
    return _struct(
        f"({_PACKAGE}.ImagePullJobTemplate)",
        PullSecrets=_strings(template.get("pullSecrets")),
        Selector=_pointer(
            "ImagePullJobNodeSelector",
            selector,
            lambda one: {"Names": _strings(one.get("names")), "LabelSelector": _label_selector(one)},
        ),
        PodSelector=_pointer("ImagePullJobPodSelector", pods, lambda one: {"LabelSelector": _label_selector(one)}),
        Parallelism=_int_or_string(template.get("parallelism")),
        PullPolicy=_pointer(
            "PullPolicy",
            policy,
            lambda one: {
                "TimeoutSeconds": _number("int32", one.get("timeoutSeconds")),
                "BackoffLimit": _number("int32", one.get("backoffLimit")),
            },
        ),
        CompletionPolicy=_struct(
            f"({_PACKAGE}.CompletionPolicy)",
            Type=_text(f"{_PACKAGE}.CompletionPolicyType", completion.get("type")),
            ActiveDeadlineSeconds=_number("int64", completion.get("activeDeadlineSeconds")),
            TTLSecondsAfterFinished=_number("int32", completion.get("ttlSecondsAfterFinished")),
        ),
        SandboxConfig=_pointer(
            "SandboxConfig",
            sandbox,
            lambda one: {"Labels": _map(one.get("labels")), "Annotations": _map(one.get("annotations"))},
        ),
        ImagePullPolicy=_text(f"{_PACKAGE}.ImagePullPolicy", template.get("imagePullPolicy")),
    )


def _struct(type_: str, **fields: str) -> str:
    return f"{type_}{{{' '.join(f'{name}:{value}' for name, value in fields.items())}}}"


def _pointer(type_: str, value: Mapping[str, Any] | None, fields: Any) -> str:
    shown = f"(*{_PACKAGE}.{type_})"
    return f"{shown}<nil>" if value is None else _struct(shown, **fields(value))


def _number(type_: str, value: int | None) -> str:
    return f"(*{type_}){'<nil>' if value is None else value}"


def _text(type_: str, value: str | None) -> str:
    return f"({type_}){value or ''}"


def _strings(value: list[str] | None) -> str:
    return "([]string)" + ("<nil>" if value is None else f"[{' '.join(value)}]")


def _map(value: Mapping[str, str] | None) -> str:
    if value is None:
        return "(map[string]string)<nil>"
    pairs = " ".join(f"{key}:{value[key]}" for key in sorted(value, key=lambda key: key.encode()))
    return f"(map[string]string)map[{pairs}]"


def _int_or_string(value: int | str | None) -> str:
    if value is None:
        return "(*intstr.IntOrString)<nil>"
    number, text = (0, value) if isinstance(value, str) else (value, "")
    return _struct(
        "(*intstr.IntOrString)",
        Type=f"(intstr.Type){int(isinstance(value, str))}",
        IntVal=f"(int32){number}",
        StrVal=f"(string){text}",
    )


def _label_selector(selector: Mapping[str, Any]) -> str:
    requirements = selector.get("matchExpressions")
    shown = "<nil>"
    if requirements is not None:
        items = (
            _struct(
                "",
                Key=_text("string", one.get("key")),
                Operator=_text("v1.LabelSelectorOperator", one.get("operator")),
                Values=_strings(one.get("values")),
            )
            for one in requirements
        )
        shown = f"[{' '.join(items)}]"
    return _struct(
        "(v1.LabelSelector)",
        MatchLabels=_map(selector.get("matchLabels")),
        MatchExpressions=f"([]v1.LabelSelectorRequirement){shown}",
    )


# Jobs and progress of an ImageListPullJob. [IMG-70 … IMG-76, IMG-104]

_SUFFIX: Final = 5
_MAX_NAME: Final = 253
Json = dict[str, Any]


def owner_of(job: ImageListPullJob) -> Owner:
    """Return the ImageListPullJob as an owner, for owner references."""
    return Owner.of(IMAGE_LIST_PULL_JOB.resource(), job.metadata)


def template_of(job: ImageListPullJob) -> Json:
    """Return the spec that all jobs of the list share."""
    return {key: value for key, value in job.spec.to_dict().items() if key != "images"}


def template_hash(template: Mapping[str, Any]) -> str:
    """Return OpenKruise's hash of the template, so that jobs created by OpenKruise are kept. [IMG-70]"""
    return safe_encode(str(fnv32a(shown_template(template).encode("utf-8", "surrogatepass"))))


def is_up_to_date(child: ImagePullJob, template: Mapping[str, Any]) -> bool:
    """Return whether the job's spec matches the list's, ignoring defaults that admission has set. [IMG-73]"""
    spec = {key: value for key, value in child.spec.to_dict().items() if key != "image"}
    for key in ("selector", "podSelector"):
        # These fields can hold thousands of names, and have no defaults.
        if spec.get(key) == template.get(key):
            spec.pop(key, None)
            template = {name: value for name, value in template.items() if name != key}
    return bool(_comparable(spec) == _comparable(template))


def child_of(job: ImageListPullJob, image: str, template: Mapping[str, Any], hash_: str) -> Json:
    """Return the job for an image. Its name is derived from the list, the image and the template, so creation is
    idempotent. [IMG-72]"""
    metadata = job.metadata
    prefix = f"{metadata.name[: _MAX_NAME - _SUFFIX - 1]}-"
    digest = hashlib.sha256(f"{metadata.uid} {image} {hash_}".encode("utf-8", "surrogatepass")).digest()
    resource = IMAGE_PULL_JOB.resource()
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": prefix + "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:_SUFFIX]),
            "generateName": prefix,
            "namespace": metadata.namespace,
            "labels": {names.CONTROLLER_REVISION_HASH: hash_},
            "ownerReferences": [owner_of(job).reference],
        },
        "spec": {**template, "image": image},
    }


@dataclass(frozen=True, slots=True)
class Children:
    """Jobs of a list: the current ones by image, images that need a job, and jobs to delete."""

    current: Mapping[str, ImagePullJob]
    create: tuple[str, ...]
    delete: tuple[ImagePullJob, ...]


def children_of(
    job: ImageListPullJob, present: Iterable[ImagePullJob], matches: Callable[[ImagePullJob], bool]
) -> Children:
    """Compare the existing jobs with the list. ``matches`` returns whether the spec of a job is up to date. [IMG-73]"""
    current: dict[str, ImagePullJob] = {}
    delete = []
    wanted = set(job.spec.images)
    for child in sorted(present, key=lambda one: (one.metadata.creation_timestamp, one.name)):
        if child.deleting:
            continue
        image = child.spec.image
        if image in wanted and image not in current and matches(child):
            current[image] = child
        else:
            delete.append(child)
    create = tuple(image for image in dict.fromkeys(job.spec.images) if image not in current)
    return Children(current, create, tuple(delete))


def status_of(job: ImageListPullJob, current: Mapping[str, ImagePullJob], now: datetime) -> Json:
    """Return the list's status. [IMG-75, IMG-76]"""
    active = completed = succeeded = 0
    failed: list[Json] = []
    for image, child in sorted(current.items()):
        status = child.status
        if status is None or not status.start_time:
            continue
        active += status.active > 0
        completed += status.desired == status.failed + status.succeeded
        succeeded += status.desired == status.succeeded
        if status.failed:
            message = f"Please check for details which nodes failed by 'kubectl get ImagePullJob {child.name}'."
            failed.append({"imagePullJob": child.name, "name": image, "message": message})
    started = job.status.start_time if job.status is not None else ""
    desired = len(job.spec.images)
    found: Json = {
        "startTime": started or rfc3339(now),
        "desired": desired,
        "active": active,
        "completed": completed,
        "succeeded": succeeded,
    }
    if failed:
        found["failedImageStatuses"] = failed
    if job.spec.completion_policy.type != NEVER and completed == desired:
        found["completionTime"] = rfc3339(now)
    return found


def _comparable(template: Mapping[str, Any]) -> Any:
    """Return the template with defaults and without empty fields."""
    return _full(job_with_defaults({"spec": dict(template)})["spec"])


def _full(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: kept for key, one in value.items() if (kept := _full(one)) not in (None, "", [], {})}
    return [_full(one) for one in value] if isinstance(value, list) else value
