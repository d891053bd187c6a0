"""Which annotations SidecarSets may put on Pods: the administrator's whitelist (SS-31). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from app.api import names
from app.kube.regex import Pattern, PatternError, compile_re2
from app.kube.selectors import SelectorError, compile_selector

_WHERE = f"ConfigMap {names.CONFIGURATION_CONFIG_MAP}, key {names.PATCH_POD_METADATA_WHITELIST_KEY}"


class WhitelistError(ValueError):
    """A whitelist that cannot be read; says where it stands."""


def refusal(text: str | None, labels: Mapping[str, str], keys: Iterable[str], *, defaults_allowed: bool) -> str:
    """Why a set with these labels may not patch these annotations, or "".

    ``text`` is the whitelist as the ConfigMap has it, None or empty where there is none. ``defaults_allowed``: the
    gate SidecarSetPatchPodMetadataDefaultsAllowed, which decides only where no pattern is meant for the set.
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
    """The patterns of all rules meant for a set with these labels. Raises :class:`WhitelistError`."""
    patterns: list[Pattern] = []
    for index, rule in enumerate(_rules(text)):
        selector, expressions = _value(rule, "selector"), _value(rule, "allowedAnnotationKeyExprs") or []
        if not isinstance(expressions, list) or not isinstance(selector, dict | None):
            raise WhitelistError(f"{_WHERE}: rules[{index}]: expected an object selector and a list of expressions")
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
    rules = _value(document, "rules") if isinstance(document, dict) else False
    if rules is None:
        return []
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise WhitelistError(f'{_WHERE}: expected an object {{"rules": [...]}}')
    return rules


def _text(expression: Any) -> str:
    if not isinstance(expression, str):
        raise PatternError(f"allowedAnnotationKeyExprs: {expression!r} is not a string")
    return expression


def _value(obj: Mapping[str, Any], name: str) -> Any:
    """MGR-80: keys count whatever their case, as Go reads them."""
    if name in obj:
        return obj[name]
    return next((value for key, value in obj.items() if key.lower() == name.lower()), None)
