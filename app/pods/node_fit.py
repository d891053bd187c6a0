"""Node eligibility of a Pod: the scheduler's rules except those about resources and other Pods. Pure.

Controllers that place Pods themselves use this module: those of DaemonSets, and of jobs that run once per node. A
node's name, labels and taints are considered; its conditions and cordoning matter only through the taints that they
cause. [DS-16, DS-18]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.kube.fielderrors import FieldError, Path, too_many
from app.kube.jsonvalues import as_object, objects
from app.kube.objects import Node, Taint
from app.kube.selectors import Operator, Requirement

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
_NAME: Final = "metadata.name"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS: Final = {operator.value: operator for operator in Operator}


def pinned(spec: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return the Pod spec with a required node affinity to this node only."""
    term = {"matchFields": [{"key": _NAME, "operator": "In", "values": [node]}]}
    affinity = spec.get("affinity") or {}
    node_affinity = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: {"nodeSelectorTerms": [term]}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": node_affinity}}


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.operator in ("", "Equal") and self.value == taint.value


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One term of a required node affinity: all its requirements must match. A term without requirements matches no
    node."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    #: Whether the term cannot be parsed; it then matches no node.
    impossible: bool = False

    def fits(self, node: Node) -> bool:
        if self.impossible or not (self.labels or self.fields):
            return False
        fields = {_NAME: node.metadata.name}
        return all(one.matches(node.metadata.labels) for one in self.labels) and all(
            one.matches(fields) for one in self.fields
        )


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Eligibility of a node for a Pod. ``reason`` says why the Pod should not run there; '' if it should."""

    should_run: bool
    #: Whether a running Pod may stay.
    should_continue: bool
    reason: str = ""


ELIGIBLE: Final = Eligibility(True, True)


@dataclass(frozen=True, slots=True)
class Placement:
    """Node constraints of a Pod: compiled once from its spec, then matched against any number of nodes.

    ``terms`` are the terms of the required node affinity, one of which must match; None without such an affinity.
    """

    node_name: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()

    def eligibility(self, node: Node) -> Eligibility:
        """Return whether a Pod should run on the node, and whether a running one may stay. [DS-18]"""
        reason = self._mismatch(node)
        if reason:
            return Eligibility(False, False, reason)
        untolerated = [taint for taint in node.spec.taints if self._repels(taint)]
        if not untolerated:
            return ELIGIBLE
        stays = all(taint.effect != NO_EXECUTE for taint in untolerated)
        return Eligibility(False, stays, f"taint {_shown(untolerated[0])} is not tolerated")

    def _mismatch(self, node: Node) -> str:
        if self.node_name and self.node_name != node.metadata.name:
            return f"spec.nodeName is {self.node_name}"
        labels = node.metadata.labels
        for key, value in self.node_selector:
            if labels.get(key) != value:
                return f"nodeSelector requires label {key}={value}"
        if self.terms is not None and not any(term.fits(node) for term in self.terms):
            return "no term of the required node affinity matches"
        return ""

    def _repels(self, taint: Taint) -> bool:
        if taint.effect not in (NO_SCHEDULE, NO_EXECUTE):
            return False
        return not any(one.tolerates(taint) for one in self.tolerations)


def placement_of(spec: Mapping[str, Any]) -> Placement:
    """Compile the node constraints of a Pod spec given as unvalidated JSON. Constraints that cannot be parsed match no
    node."""
    required = as_object(as_object(spec.get("affinity")).get("nodeAffinity")).get(_REQUIRED)
    terms = None
    if required is not None:
        terms = tuple(node_term(one) for one in objects(as_object(required).get("nodeSelectorTerms")))
    return Placement(
        node_name=_text(spec.get("nodeName")),
        node_selector=tuple((str(key), _text(value)) for key, value in as_object(spec.get("nodeSelector")).items()),
        terms=terms,
        tolerations=tuple(toleration_of(one) for one in objects(spec.get("tolerations"))),
    )


#: Maximum number of requirements, and of tolerations, of a Pod. Each of them is compared with every node.
MAX_RULES: Final = 1_000


def placement_errors(spec: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield errors if the Pod spec at ``path`` has too many node constraints to compare with every node."""
    required = as_object(as_object(spec.get("affinity")).get("nodeAffinity")).get(_REQUIRED)
    terms = objects(as_object(required).get("nodeSelectorTerms"))
    rules = sum(max(1, _count(term.get("matchExpressions")) + _count(term.get("matchFields"))) for term in terms)
    if rules > MAX_RULES:
        yield too_many(path.child("affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms"), rules, MAX_RULES)
    if (tolerations := _count(spec.get("tolerations"))) > MAX_RULES:
        yield too_many(path.child("tolerations"), tolerations, MAX_RULES)


def _count(listed: Any) -> int:
    return len(listed) if isinstance(listed, list) else 0


def node_term(term: Mapping[str, Any]) -> NodeTerm:
    """Compile a node selector term."""
    try:
        labels = tuple(_requirement(one) for one in objects(term.get("matchExpressions")))
        fields = tuple(_requirement(one) for one in objects(term.get("matchFields")))
    except ValueError:
        return NodeTerm(impossible=True)
    return NodeTerm(labels, fields, impossible=any(one.key != _NAME for one in fields))


def _requirement(found: Mapping[str, Any]) -> Requirement:
    """Compile a requirement. Raises ValueError for an unknown operator, or one without the values it needs."""
    operator = _OPERATORS.get(_text(found.get("operator")))
    listed = found.get("values")
    values = tuple(_text(one) for one in listed) if isinstance(listed, list) else ()
    if operator is None or (operator in (Operator.GREATER_THAN, Operator.LESS_THAN) and len(values) != 1):
        raise ValueError(f"{found.get('operator')} of {len(values)} values")
    return Requirement(_text(found.get("key")), operator, values)


#: Maximum number of requirements added to a Pod's node selector terms.
MAX_ADDED: Final = 10_000


def joining_problem(terms: Sequence[Any], added: Mapping[str, Any]) -> str:
    """Return why the requirements of ``added`` cannot be added to each of ``terms``, or "" if they can. The number of
    added requirements is multiplied by the number of terms."""
    more = sum(len(added.get(field) or ()) for field in ("matchExpressions", "matchFields"))
    if len(terms) * more <= MAX_ADDED:
        return ""
    return f"{more} requirements for each of {len(terms)} node selector terms exceed the limit of {MAX_ADDED}"


def toleration_of(found: Mapping[str, Any]) -> Toleration:
    """Compile a toleration."""
    return Toleration(*(_text(found.get(name)) for name in ("key", "operator", "value", "effect")))


def with_tolerations(spec: Mapping[str, Any], added: Iterable[Mapping[str, str]]) -> list[Any]:
    """Return the tolerations of a Pod's spec and the ``added`` ones, which replace identical ones."""
    names = ("key", "operator", "value", "effect")
    found: list[Mapping[str, Any]] = [*objects(spec.get("tolerations"))]
    for one in added:
        found = [one if all(_text(old.get(name)) == one.get(name, "") for name in names) else old for old in found]
        if one not in found:
            found.append(one)
    return found


def _shown(taint: Taint) -> str:
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
