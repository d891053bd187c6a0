"""Checks that an answer equals the reference's, and that its patch applies and changes only what its rules allow.

A second admission of the result must change nothing (D-21), unless the reference gives a reason.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jsonpatch
import jsonpointer

from tests.property.branches import Branches
from tests.property.case import Case, Json
from tests.property.defaults import defaulted_set
from tests.property.oracle import Expected, expected
from tests.property.product import Answer, answer, defaulted

#: Rule → what it may change: a pattern of the operation's path, and one of the pointers that differ afterwards. The
#: second addresses list items by name; words in braces stand for names from the case's sets.
ALLOWED: dict[str, tuple[str, str]] = {
    "SS-42": (r"/spec/containers/(\d+|-)", r"/spec/containers/{container}(/.*)?"),
    "SS-44": (r"/spec/initContainers(/(\d+|-))?", r"/spec/initContainers/{init}(/.*)?"),
    "SS-45": (r"/spec/containers/(\d+|-)", r"/spec/containers/{twin}(/.*)?"),
    "SS-48": (r"/spec/volumes(/-)?", r"/spec/volumes/{volume}"),
    "SS-52": (r"/spec/imagePullSecrets(/-)?", r"/spec/imagePullSecrets/.*"),
    "SS-53": (r"/metadata/annotations(/.+)?", r"/metadata/annotations/{patched}"),
    "SS-56": (r"/metadata/annotations(/.+)?", r"/metadata/annotations/kruise\.io~1sidecarset-injected-list"),
    "SS-57": (r"/metadata/annotations(/.+)?", r"/metadata/annotations/kruise\.io~1sidecarset-hash(-without-image)?"),
    "SS-79": (
        r"/metadata/annotations(/.+)?",
        r"/metadata/annotations/(version(alt)?\.sidecarset\.kruise\.io~1{twin}"
        r"|kruise\.io~1sidecarset-working-hotupgrade-container)",
    ),
    "PM-142": (r"/spec/containers/\d+/env(/-)?", r"/spec/containers/[^/]+/env/(KRUISE_CONTAINER_BARRIER|\d+)"),
    "PM-144": (r"/metadata/name", r"/metadata/name"),
    "PM-176": (r"/spec/readinessGates(/-)?", r"/spec/readinessGates/.*"),
}

#: Fields for which Kubernetes treats empty and absent values alike.
EMPTY_IS_ABSENT = {
    *("annotations", "env", "volumeMounts", "volumeDevices", "resources", "limits", "requests"),
    *("initContainers", "volumes", "imagePullSecrets", "creationTimestamp", "injectionStrategy"),
}


@dataclass
class Outcome:
    """The judgment of one case: the branches reached and the errors of the answer."""

    case: Case
    expected: Expected
    answer: Answer
    problems: list[str] = field(default_factory=list)
    result: Json | None = None

    def report(self) -> str:
        """Return a report: the command that repeats the case, the errors, the input, expected and actual answers."""
        parts = [
            f"FAILED  python -m tests.property --case {self.case.seed}",
            *(f"  - {problem}" for problem in self.problems),
            "case:",
            self.case.text(),
            "expected:",
            json.dumps(self.expected.pod, indent=1) if self.expected.pod else f"refused by {self.expected.refused}",
            "got:",
            json.dumps(self.result, indent=1) if self.answer.refused is None else f"refused: {self.answer.refused}",
            "operations:",
            *(json.dumps(o) for o in self.answer.operations),
        ]
        return "\n".join(parts)


def judge(case: Case, *, twice: bool = True) -> Outcome:
    """Compare the product with the reference; ``twice``: also after a second admission."""
    given = copy.deepcopy(case.pod)
    outcome = Outcome(case, expected(case), answer(case))
    if case.pod != given:
        outcome.problems.append("the Pod of the request was changed in place")
        case.pod = given
    outcome.problems += _defaulting(case)
    outcome.problems += _first_pass(case, outcome)
    if twice and outcome.result is not None and not outcome.problems:
        outcome.problems += _second_pass(case, outcome)
    return outcome


def _defaulting(case: Case) -> Iterator[str]:
    """The product defaults and hashes the sets as the reference does. [SS-5 … SS-8, SS-10 … SS-13]"""
    for raw in case.raw_sets:
        wanted, got = normal(defaulted_set(raw)), normal(defaulted(raw))
        if wanted != got:
            places = ", ".join(sorted(changed(wanted, got)))
            yield f"SidecarSet {raw['metadata']['name']} has other defaults at {places}"


def _first_pass(case: Case, outcome: Outcome) -> Iterator[str]:
    wanted, got = outcome.expected, outcome.answer
    if got.refused is not None:
        if wanted.pod is not None:
            yield f"refused, though no rule refuses it: {got.refused}"
        elif not re.search("|".join(map(re.escape, _names_to_tell(case))), got.refused):
            yield f"the refusal names neither the Pod nor a set: {got.refused!r}"
        return
    outcome.result, problem = applied(case.pod, got.operations)
    if problem:
        yield problem
        return
    if wanted.pod is None:
        yield f"admitted, though {wanted.refused}"
    elif normal(outcome.result) != normal(wanted.pod):
        places = sorted(changed(normal(wanted.pod), normal(outcome.result)))
        yield f"the Pod differs from the expected one at {', '.join(places[:10])}"
    yield from outside_of_rules(case, got, outcome.result)


def _second_pass(case: Case, outcome: Outcome) -> Iterator[str]:
    assert outcome.result is not None
    again = replace(case, pod=outcome.result)
    wanted, got = expected(again), answer(again)
    if got.refused is not None:
        if wanted.pod is not None:
            yield f"D-21: the second pass refuses: {got.refused}"
        elif not outcome.expected.unrepeatable:
            yield f"D-21: the rules refuse their own result: {wanted.refused}"
        return
    result, problem = applied(again.pod, got.operations)
    if problem:
        yield f"second pass: {problem}"
    elif wanted.pod is None or normal(result) != normal(wanted.pod):
        yield "D-21: the second pass gives another Pod than the reference's second pass"
    elif got.operations and not outcome.expected.unrepeatable:
        paths = [o["path"] for o in got.operations]
        yield f"D-21: the second pass changes {', '.join(paths)}"


def _names_to_tell(case: Case) -> list[str]:
    """Return what a rejection may name: the Pod, a set, or words of OpenKruise's own message."""
    metadata = case.pod["metadata"]
    pod = [f"{n}" for n in (metadata.get("name"), metadata.get("generateName")) if n]
    sets = [f"SidecarSet {s['metadata']['name']}" for s in case.sets]
    return [*pod, *sets, "no containers match the regex pattern"]


def applied(pod: Json, operations: list[Json]) -> tuple[Json | None, str]:
    try:
        result: Json = jsonpatch.JsonPatch(operations).apply(copy.deepcopy(pod))
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        return None, f"the patch does not apply: {error}"
    return result, ""


def normal(value: Any) -> Any:
    """Return a document without nulls, and without empty lists and maps where Kubernetes drops them."""
    if isinstance(value, dict):
        inner = {k: normal(v) for k, v in value.items() if v is not None and k != "fieldOfTheFuture"}
        kept = {k: v for k, v in inner.items() if not (k in EMPTY_IS_ABSENT and v in ({}, []))}
        return {**kept, **({"fieldOfTheFuture": value["fieldOfTheFuture"]} if "fieldOfTheFuture" in value else {})}
    return [normal(v) for v in value] if isinstance(value, list) else value


def changed(before: Any, after: Any, path: str = "") -> set[str]:
    """Return the pointers at which two documents differ; items of lists with unique names are addressed by name."""
    if before == after and type(before) is type(after):
        return set()
    if isinstance(after, dict) and (before is None or isinstance(before, dict)):
        before = before or {}
        found = set()
        for key in set(before) | set(after):
            here = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in after or (key not in before and not isinstance(after[key], (dict, list))):
                found.add(here)
            else:
                found |= changed(before.get(key), after[key], here) or ({here} if key not in before else set())
        return found
    if isinstance(after, list) and (before is None or isinstance(before, list)):
        return _changed_list(before or [], after, path)
    return {path}


def _changed_list(before: list[Any], after: list[Any], path: str) -> set[str]:
    keyed = all(_unique_names(items) for items in (before, after))
    if not keyed:
        found = {f"{path}/{i}" for i in range(min(len(before), len(after))) if before[i] != after[i]}
        return found | {f"{path}/{i}" for i in range(min(len(before), len(after)), max(len(before), len(after)))}
    old, new = {i["name"]: i for i in before}, {i["name"]: i for i in after}
    found = set()
    for name in set(old) | set(new):
        if name not in old or name not in new:
            found.add(f"{path}/{name}")
        else:
            found |= changed(old[name], new[name], f"{path}/{name}")
    if [n for n in old if n in new] != [n for n in new if n in old]:
        found.add(f"{path}#order")
    return found


def _unique_names(items: list[Any]) -> bool:
    if not all(isinstance(i, dict) and "name" in i for i in items):
        return False
    return len({i["name"] for i in items}) == len(items)


def outside_of_rules(case: Case, got: Answer, result: Json | None) -> Iterator[str]:
    """Return operations that name no rule or the wrong path, and changes that no named rule may make."""
    words = _words(case)
    patterns = []
    for operation, rule in zip(got.operations, got.rules, strict=True):
        ids = [word for word in rule.split() if re.fullmatch(r"[A-Z]+-[0-9]+", word)]
        unknown = [i for i in ids if i not in ALLOWED]
        if not ids or unknown:
            yield f"operation at {operation['path']} names {unknown or 'no rule'} ({rule!r})"
            continue
        if not any(re.fullmatch(ALLOWED[i][0], operation["path"]) for i in ids):
            yield f"rule {rule} may not write to {operation['path']}"
        patterns += [ALLOWED[i][1].format(**words) for i in ids]
    allowed = [re.compile(p) for p in dict.fromkeys(patterns)]
    for pointer in sorted(changed(case.pod, result)):
        if not any(p.fullmatch(pointer) for p in allowed):
            yield f"{pointer} changed, which no rule cited in the patch allows"


def _words(case: Case) -> dict[str, str]:
    """Return the names from the sets and their revisions, as alternatives for the patterns."""
    specs = [s["spec"] for s in case.sets] + [r["data"]["spec"] for r in case.revisions]
    containers = [c for s in specs for c in s.get("containers") or []]
    hot = [c for c in containers if (c.get("upgradeStrategy") or {}).get("upgradeType") == "HotUpgrade"]
    patches = [e for s in specs for e in s.get("patchPodMetadata") or []]
    return {
        "container": _any(c["name"] for c in containers if c not in hot),
        "init": _any(c["name"] for s in specs for c in s.get("initContainers") or []),
        "twin": _any(f"{c['name']}-{n}" for c in hot for n in (1, 2)),
        "volume": _any(v["name"] for s in specs for v in s.get("volumes") or []),
        "patched": _any(k.replace("/", "~1") for e in patches for k in e["annotations"]),
    }


def _any(names: Iterable[str]) -> str:
    return f"({'|'.join(sorted(map(re.escape, set(names))) or ['(?!)'])})"


def counted(outcome: Outcome) -> Branches:
    """Count each branch once per case."""
    return Branches(dict.fromkeys(outcome.expected.branches, 1))
