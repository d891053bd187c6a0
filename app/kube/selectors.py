"""Label selectors: compile them, match labels, and find candidate selectors without trying each one.

A compiled :class:`Selector` is immutable and holds no reference to its source. Compiling and validating follow
apimachinery's ``LabelSelectorAsSelector`` and ``ValidateLabelSelector``; the query language follows its
``labels.Parse``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from app.kube.fielderrors import (
    FieldError,
    GoLiteral,
    Path,
    aggregate,
    forbidden,
    go_string_map,
    go_string_slice,
    invalid,
    quote,
    required,
    too_many,
)
from app.kube.selector_query import SelectorError, in_requirement, parse
from app.kube.validation import is_label_value, is_qualified_name, validate_labels

#: A selector with more requirements is invalid, because controllers match it against every Pod of a namespace.
MAX_REQUIREMENTS: Final = 256
#: A requirement with more values is indexed under its label key alone, and matched by a set.
MAX_VALUES: Final = 16


class Operator(StrEnum):
    """Operators of requirements."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER_THAN = "Gt"
    LESS_THAN = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label key. ``Gt`` and ``Lt`` occur only in queries and have one integer value."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    #: The values, as a set if there are many.
    _members: Container[str | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        many = len(self.values) > MAX_VALUES
        object.__setattr__(self, "_members", frozenset(self.values) if many else self.values)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether ``labels`` meet the condition; a missing key meets ``NotIn`` and ``DoesNotExist``."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self._members
            case Operator.NOT_IN:
                return value not in self._members
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
        number, limit = _int64(value), _int64(self.values[0])
        if number is None or limit is None:
            return False
        return number > limit if self.operator is Operator.GREATER_THAN else number < limit

    def as_query(self) -> str:
        """Return the condition in the syntax of a ``labelSelector`` parameter."""
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                return f"{self.key}{'>' if self.operator is Operator.GREATER_THAN else '<'}{self.values[0]}"
            case Operator.IN if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case Operator.NOT_IN if len(self.values) == 1:
                return f"{self.key}!={self.values[0]}"
        word = "in" if self.operator is Operator.IN else "notin"
        return f"{self.key} {word} ({','.join(sorted(self.values))})"


#: Operators of a LabelSelector; Gt and Lt exist only in queries.
_SELECTOR_OPERATORS = {o.value: o for o in (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)}


def _int64(text: str | None) -> int | None:
    """Parse ``text`` like Go's ``strconv.ParseInt(text, 10, 64)``; return None for an error."""
    if text is None or len(text) > 20 or not text.isascii():
        return None
    if not text[text[:1] in ("+", "-") :].isdigit():
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled selector. All requirements must be met; with none, it matches everything, like an empty
    LabelSelector."""

    requirements: tuple[Requirement, ...] = ()
    #: Labels and the one value each must have; an index of selectors uses them as keys.
    equalities: Mapping[str, str] = field(default_factory=dict)
    _pairs: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    _others: tuple[Requirement, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, requirements: Iterable[Requirement]) -> Selector:
        """Return a selector of these requirements, ordered by key."""
        ordered = tuple(sorted(requirements, key=lambda requirement: requirement.key))
        # Nearly all requirements are an In with one value, which is an equality.
        single: list[tuple[str, str]] = []
        others: list[Requirement] = []
        for one in ordered:
            if one.operator is Operator.IN and len(one.values) == 1:
                single.append((one.key, one.values[0]))
            else:
                others.append(one)
        return cls(requirements=ordered, equalities=dict(single), _pairs=tuple(single), _others=tuple(others))

    @property
    def empty(self) -> bool:
        """Return whether there are no requirements, in which case everything matches."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        for key, value in self._pairs:
            if labels.get(key) != value:
                return False
        return all(requirement.matches(labels) for requirement in self._others) if self._others else True

    def __str__(self) -> str:
        return ",".join(requirement.as_query() for requirement in self.requirements)


EVERYTHING = Selector()


def compile_selector(selector: Mapping[str, Any] | None) -> Selector:
    """Compile a JSON LabelSelector.

    None, like ``{}``, becomes a selector that matches everything. For some fields, a missing selector must match
    nothing; the caller handles that. Raises :class:`SelectorError`.
    """
    if not selector:
        return EVERYTHING
    labels, expressions = _parts(selector)
    if (count := len(labels) + len(expressions)) > MAX_REQUIREMENTS:
        raise SelectorError(f"has {count} requirements; the limit is {MAX_REQUIREMENTS}")
    requirements = [_requirement(key, Operator.IN, (value,)) for key, value in labels.items()]
    for expression in expressions:
        word = expression.get("operator") or ""
        operator = _SELECTOR_OPERATORS.get(word)
        if operator is None:
            raise SelectorError(f"{quote(word)} is not a valid label selector operator")
        requirements.append(_requirement(expression.get("key") or "", operator, tuple(expression.get("values") or ())))
    return Selector.of(requirements) if requirements else EVERYTHING


def _parts(selector: Mapping[str, Any]) -> tuple[Mapping[str, str], list[Mapping[str, Any]]]:
    """Return matchLabels and matchExpressions after checking every type, since the JSON may come from anywhere."""
    labels = _or_empty(selector.get("matchLabels"), {})
    expressions = _or_empty(selector.get("matchExpressions"), [])
    if not isinstance(labels, Mapping) or not all(isinstance(t, str) for pair in labels.items() for t in pair):
        raise SelectorError("matchLabels must be an object whose values are strings")
    if not isinstance(expressions, list) or not all(isinstance(e, Mapping) for e in expressions):
        raise SelectorError("matchExpressions must be a list of objects")
    for expression in expressions:
        values = _or_empty(expression.get("values"), [])
        if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
            raise SelectorError("matchExpressions[].values must be a list of strings")
        for name in ("key", "operator"):
            if not isinstance(_or_empty(expression.get(name), ""), str):
                raise SelectorError(f"matchExpressions[].{name} must be a string")
    return labels, expressions


def _or_empty(value: Any, empty: Any) -> Any:
    """Return ``empty`` for null, which means an omitted field, and any other value unchanged."""
    return empty if value is None else value


def _requirement(key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
    """Return a checked requirement. Raises the errors of apimachinery's ``NewRequirement``."""
    errors: list[FieldError] = []
    if messages := is_qualified_name(key):
        errors.append(invalid("key", key, "; ".join(messages)))
    if operator in (Operator.IN, Operator.NOT_IN):
        if not values:
            errors.append(invalid("values", [], "for 'in', 'notin' operators, values set can't be empty"))
    elif operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        if values:
            errors.append(invalid("values", list(values), "values set must be empty for exists and does not exist"))
    elif _int64(values[0]) is None:
        errors.append(invalid("values[0]", values[0], "for 'Gt', 'Lt' operators, the value must be an integer"))
    for index, value in enumerate(values):
        if messages := is_label_value(value):
            errors.append(invalid(f"values[{index}][{key}]", value, "; ".join(messages)))
    if errors:
        raise SelectorError(aggregate(errors))
    return Requirement(key, operator, tuple(dict.fromkeys(values)))


def validate_selector(selector: Mapping[str, Any] | None, path: Path) -> list[FieldError]:
    """Return all errors of a LabelSelector as ``ValidateLabelSelector`` reports them, matchLabels sorted by key."""
    if not selector:
        return []
    try:
        labels, expressions = _parts(selector)
    except SelectorError as error:
        return [invalid(path, GoLiteral("selector"), str(error))]
    if (count := len(labels) + len(expressions)) > MAX_REQUIREMENTS:
        return [too_many(path, count, MAX_REQUIREMENTS)]
    errors = validate_labels(labels, path.child("matchLabels"))
    for index, expression in enumerate(expressions):
        at = path.child("matchExpressions").index(index)
        values = expression.get("values") or []
        errors.extend(requirement_errors(expression.get("key") or "", expression.get("operator") or "", values, at))
    return errors


def requirement_errors(
    key: str, operator: str, values: Sequence[str], path: Path, *, of_node: bool = False
) -> list[FieldError]:
    """Return the errors of a requirement; with ``of_node``, operators that compare numbers are valid too."""
    errors: list[FieldError] = []
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(required(path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(path.child("values"), detail))
    elif of_node and operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(path.child("values"), detail))
    else:
        errors.append(invalid(path.child("operator"), operator, "not a valid selector operator"))
    errors.extend(invalid(path.child("key"), key, message) for message in is_qualified_name(key))
    for index, value in enumerate(values):
        at = path.child("values").index(index)
        errors.extend(invalid(at, value, message) for message in is_label_value(value))
    return errors


def go_label_selector(selector: Mapping[str, Any] | None) -> GoLiteral:
    """Return a LabelSelector as ``%#v`` prints it; OpenKruise's messages show invalid or empty selectors this way."""
    selector = selector or {}
    expressions = selector.get("matchExpressions")
    if expressions is None:
        shown = "[]v1.LabelSelectorRequirement(nil)"
    else:
        items = (
            f"v1.LabelSelectorRequirement{{Key:{quote(e.get('key') or '')}, Operator:{quote(e.get('operator') or '')}, "
            f"Values:{go_string_slice(e.get('values'))}}}"
            for e in expressions
        )
        shown = f"[]v1.LabelSelectorRequirement{{{', '.join(items)}}}"
    labels = go_string_map(selector.get("matchLabels"))
    return GoLiteral(f"v1.LabelSelector{{MatchLabels:{labels}, MatchExpressions:{shown}}}")


def selector_text(selector: Mapping[str, Any]) -> str:
    """Return a LabelSelector as Go prints its compiled form; workloads show it in ``status.labelSelector``.

    It is equivalent to :func:`to_query`, but an expression with one value is not shortened: ``app in (web)``.
    """
    labels, expressions = _parts(selector)
    shown = [(key, f"{key}={value}") for key, value in labels.items()]
    for expression in expressions:
        key, operator = expression.get("key") or "", expression.get("operator")
        values = ",".join(sorted(expression.get("values") or ()))
        match operator:
            case Operator.EXISTS:
                text = key
            case Operator.DOES_NOT_EXIST:
                text = f"!{key}"
            case _:
                text = f"{key} {'in' if operator == Operator.IN else 'notin'} ({values})"
        shown.append((key, text))
    return ",".join(text for _, text in sorted(shown, key=lambda item: item[0]))


def to_query(selector: Mapping[str, Any] | Selector | None) -> str:
    """Return the ``labelSelector`` parameter of a list request, sorted by key; empty if everything matches."""
    return str(selector if isinstance(selector, Selector) else compile_selector(selector))


def parse_query(text: str) -> Selector:
    """Parse a ``labelSelector`` parameter or ``kubectl -l`` argument. Raises :class:`SelectorError`."""
    requirements = parse(text)
    try:
        return Selector.of(_requirement(key, Operator(operator), values) for key, operator, values in requirements)
    except SelectorError as error:
        raise in_requirement(error) from None


# Index keys for finding the selectors that may match a set of labels. An object is indexed under the keys of one
# requirement of its selector; a lookup tries the keys of the labels. The results are only candidates: each selector
# must still be matched.


def selector_keys(namespace: str, selector: Selector) -> tuple[str, ...]:
    """Return the index keys for an object with this selector: those of one required label (by value if it has few
    permitted values, otherwise by label key) or, if no label is required, the key that every lookup includes."""
    if selector.equalities:
        return (_value_key(namespace, *next(iter(selector.equalities.items()))),)
    present = [one for one in selector.requirements if one.operator not in (Operator.NOT_IN, Operator.DOES_NOT_EXIST)]
    if not present:
        return (_everybody(namespace),)
    chosen = min(present, key=_breadth)
    if _breadth(chosen) <= MAX_VALUES:
        return tuple(_value_key(namespace, chosen.key, value) for value in chosen.values)
    return (_label_key(namespace, chosen.key),)


def label_keys(namespace: str, labels: Mapping[str, str]) -> Iterator[str]:
    """Return the index keys, without duplicates, of selectors that may match these labels."""
    yield _everybody(namespace)
    for key, value in labels.items():
        yield _label_key(namespace, key)
        yield _value_key(namespace, key, value)


def _breadth(requirement: Requirement) -> int:
    return len(requirement.values) if requirement.operator is Operator.IN else MAX_VALUES + 1


# Namespaces contain no slash, and label keys no equals sign, so all of these keys are distinct.


def _everybody(namespace: str) -> str:
    return f"{namespace}/"


def _label_key(namespace: str, key: str) -> str:
    return f"{namespace}/{key}"


def _value_key(namespace: str, key: str, value: str) -> str:
    return f"{namespace}/{key}={value}"
