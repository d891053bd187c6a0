"""The template of an ImageListPullJob as Go prints it for a hash: each value with its type, nothing left out. Pure.

The hash stands in a label of each job of the list; OpenKruise replaces jobs that have another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_PACKAGE: Final = "v1beta1"


def shown_template(template: Mapping[str, Any]) -> str:
    """IMG-70: what OpenKruise hashes of these members of a spec (JSON)."""
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
    return f"([]string){_list(value)}"


def _list(value: list[str] | None) -> str:
    return "<nil>" if value is None else f"[{' '.join(value)}]"


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
