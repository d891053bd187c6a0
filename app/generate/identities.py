"""Generate parts of docs/security.md: the permissions of view, edit and admin, and of each identity. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from app.api.kind import KindDefinition
from app.kube.admission import PolicyRule
from app.manager.permissions import merged

FILE: Final = "docs/security.md"
#: Maximum number of names to list; more are counted.
_NAMES_SHOWN: Final = 2
_PART: Final = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD: Final = "| group | resources | verbs |\n|---|---|---|\n"


def page(text: str, kinds: Sequence[KindDefinition], identities: Mapping[str, Iterable[PolicyRule]]) -> str:
    """Return the page with its generated parts. ``identities`` are headings and their permissions."""
    parts = {
        "view-edit-admin": _access(kinds),
        "identities": "\n".join(f"### {heading}\n{_table(rules)}" for heading, rules in identities.items()),
    }
    return _PART.sub(lambda found: f"{found[1]}{parts[found[2]]}{found[3]}", text)


def _access(kinds: Iterable[KindDefinition]) -> str:
    lines = ["| kind | scope | view | edit, admin | why |", "|---|---|---|---|---|"]
    for kind in sorted(kinds, key=lambda kind: (not kind.namespaced, kind.kind)):
        scope = "namespace" if kind.namespaced else "cluster"
        read, write = "read" if kind.access.view else "-", "write" if kind.access.edit else "-"
        if kind.access.edit and kind.scalable:
            write = "write, scale"
        both = f"{read}, {write}" if kind.access.view and kind.access.edit else read
        lines.append(f"| {kind.kind} | {scope} | {read} | {both} | {kind.access.why} |")
    return "\n".join(lines) + "\n"


def _table(rules: Iterable[PolicyRule]) -> str:
    scopes: dict[str, list[PolicyRule]] = {}
    for rule in rules:
        everywhere = " where bound" if rule.optional else ""
        own = f" in `{rule.namespace}`" if rule.namespace else everywhere
        where = " in its namespace" if rule.own_namespace else own
        scopes.setdefault(where, []).append(rule)
    rows = (_row(where, one) for where in sorted(scopes) for one in merged(scopes[where]))
    return _HEAD + "".join(rows)


def _row(where: str, rule: Mapping[str, Any]) -> str:
    (group,) = rule["apiGroups"]
    names = rule.get("resourceNames", [])
    named = f" ({len(names)} by name)" if len(names) > _NAMES_SHOWN else f" ({', '.join(names)})" if names else ""
    verbs = ", ".join(rule["verbs"]).replace("get, list, watch", "read")
    return f"| {group or 'core'} | {', '.join(rule['resources'])}{named}{where} | {verbs} |\n"
