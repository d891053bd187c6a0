"""Finding the selectors that may match a set of labels without asking each: keys for an index of what has a selector.

An object stands under the keys of one requirement of its selector; whoever has labels looks under theirs. What is found
*may* match: the selector itself decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from app.kube.selectors import Operator, Requirement, Selector

#: A requirement with more values stands under its label alone.
MAX_VALUES: Final = 16


def selector_keys(namespace: str, selector: Selector) -> tuple[str, ...]:
    """Where an object with this selector stands: under a value if one is asked for, else under a label that must be
    there, else where everybody looks."""
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
    """Where all stand that may match these labels, each once."""
    yield _everybody(namespace)
    for key, value in labels.items():
        yield _label_key(namespace, key)
        yield _value_key(namespace, key, value)


def _breadth(requirement: Requirement) -> int:
    return len(requirement.values) if requirement.operator is Operator.IN else MAX_VALUES + 1


# A namespace has no slash, a label's key no equals sign: no two of these are alike.


def _everybody(namespace: str) -> str:
    return f"{namespace}/"


def _label_key(namespace: str, key: str) -> str:
    return f"{namespace}/{key}"


def _value_key(namespace: str, key: str, value: str) -> str:
    return f"{namespace}/{key}={value}"
