"""Text of a review: the decisions, and the patched object with kept, removed and added parts and the rule behind each
change.

Operations are applied one by one to a tree that keeps removed parts, so that the YAML shows them in place.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

import orjson
import yaml
from rich.console import Console
from rich.text import Text

from app.cli.standalone_review import Verdict
from app.kube.admission import Allowed, Decision, Denied, Patched, PatchOperation, Review
from app.kube.jsonvalues import as_object
from app.kube.patches import segments
from app.kube.text import one_line, printable
from app.manager import generated_indexes

Sign = Literal[" ", "-", "+"]
_STYLES = {" ": "", "-": "red", "+": "green"}


def show(verdict: Verdict, console: Console) -> None:
    """Print one verdict."""
    review = verdict.review
    title = f"{review.operation} {review.kind.kind} {review.namespace + '/' if review.namespace else ''}{_name(review)}"
    refusal = verdict.refusal
    outcome = "denied" if refusal else "changed" if verdict.operations else "allowed"
    style = {"denied": "bold red", "changed": "bold green", "allowed": "bold"}[outcome]
    console.print(Text.assemble((one_line(title), "bold"), ": ", (outcome, style)))
    for webhook, decision in verdict.decisions:
        console.print(Text(f"  {webhook}: {printable(_said(decision))}"), soft_wrap=True)
        warnings = decision.warnings if isinstance(decision, Allowed | Patched) else ()
        for warning in warnings:
            console.print(Text(f"  warning: {one_line(warning)}", style="yellow"), soft_wrap=True)
    if verdict.operations and refusal is None:
        _explain_rules(verdict, console)
        console.print()
        for line in changes(review.object, verdict.operations):
            console.print(_rendered(line), soft_wrap=True)


def _explain_rules(verdict: Verdict, console: Console) -> None:
    """Print the text of each rule behind a change."""
    sentences = {rule: text for of_path in generated_indexes.rules().values() for rule, text in of_path.items()}
    for rule in dict.fromkeys(operation.rule for operation in verdict.operations if operation.rule):
        parts = [f"{part}: {sentences[part]}" for part in rule.replace(",", " ").split() if part in sentences]
        for said in parts:
            console.print(Text(f"    {said}", style="dim"), soft_wrap=True)


def _rendered(line: Line) -> Text:
    text = Text(f"{line.sign} {printable(line.text)}", style=_STYLES[line.sign])
    if line.rule:
        text.append(f"   # {line.rule}", style="cyan")
    return text


def _said(decision: Decision) -> str:
    if isinstance(decision, Denied):
        # A message may quote characters that UTF-8 cannot encode.
        return f"denied ({decision.code}): {decision.message.encode('utf-8', 'replace').decode()}"
    if isinstance(decision, Patched):
        rules = dict.fromkeys(operation.rule for operation in decision.operations if operation.rule)
        count = len(decision.operations)
        return f"{count} {'change' if count == 1 else 'changes'} by {', '.join(rules)}"
    return "allowed"


def _name(review: Review) -> str:
    fields = as_object((review.object or {}).get("metadata"))
    return review.name or str(fields.get("name") or fields.get("generateName") or "")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the text. ``rule`` is set on the first line of a change."""

    sign: Sign
    text: str
    rule: str = ""


@dataclass(slots=True)
class _Node:
    """A value: a scalar, an object (``members``) or a list (``items``). Removed nodes are kept in place."""

    scalar: Any = None
    members: list[tuple[str, _Node]] | None = None
    items: list[_Node] | None = None
    sign: Sign = " "
    rule: str = ""


def changes(original: Any, operations: Iterable[PatchOperation]) -> list[Line]:
    """Apply the operations and return the object line by line.

    Raises PatchError or LookupError if the patch does not apply.
    """
    root = _node(original, " ", "")
    for operation in operations:
        _apply(root, operation)
    return list(_lines(root, 0))


def _node(value: Any, sign: Sign, rule: str) -> _Node:
    if isinstance(value, dict):
        return _Node(members=[(str(key), _node(item, sign, "")) for key, item in value.items()], sign=sign, rule=rule)
    if isinstance(value, list | tuple):
        return _Node(items=[_node(item, sign, "") for item in value], sign=sign, rule=rule)
    return _Node(scalar=value, sign=sign, rule=rule)


# --- applying ---------------------------------------------------------------------------------------------------------


def _apply(root: _Node, operation: PatchOperation) -> None:
    *around, last = segments(operation.path)
    parent = root
    for key in around:
        parent = _child(parent, key)
    if parent.members is not None:
        _apply_to_object(parent.members, last, operation)
    elif parent.items is not None:
        _apply_to_list(parent.items, last, operation)
    else:
        raise LookupError(f"{operation.path}: cannot change a part of a scalar")


def _child(parent: _Node, key: str) -> _Node:
    if parent.members is not None:
        for name, node in parent.members:
            if name == key and node.sign != "-":
                return node
        raise LookupError(f"{key}: no such field")
    if parent.items is not None:
        return parent.items[_position(parent.items, int(key))]
    raise LookupError(f"{key}: inside a scalar")


def _apply_to_object(members: list[tuple[str, _Node]], key: str, operation: PatchOperation) -> None:
    for position, (name, node) in enumerate(members):
        if name == key and node.sign != "-":
            if operation.op == "remove":
                _remove(members, position, operation.rule)
            else:
                members[position : position + 1] = [
                    (key, part) for part in _replaced(node, operation.value, operation.rule)
                ]
            return
    if operation.op != "add":
        raise LookupError(f"{operation.path}: no such field")
    members.append((key, _node(_plain(operation.value), "+", operation.rule)))


def _apply_to_list(items: list[_Node], key: str, operation: PatchOperation) -> None:
    if operation.op == "add":
        position = len(items) if key == "-" else _position(items, int(key), end=True)
        items.insert(position, _node(_plain(operation.value), "+", operation.rule))
        return
    position = _position(items, int(key))
    if operation.op == "remove":
        keyed = [("", item) for item in items]
        _remove(keyed, position, operation.rule)
        items[:] = [item for _, item in keyed]
    else:
        items[position : position + 1] = _replaced(items[position], operation.value, operation.rule)


def _position(items: list[_Node], index: int, *, end: bool = False) -> int:
    """Convert an index in the patched list to a position in ``items``, which still contains removed items."""
    live = [position for position, item in enumerate(items) if item.sign != "-"]
    if end and index == len(live):
        return live[-1] + 1 if live else len(items)
    return live[index]


def _remove(members: list[tuple[str, _Node]], position: int, rule: str) -> None:
    name, node = members[position]
    if node.sign == "+":  # added by an earlier operation, so never shown
        del members[position]
    else:
        members[position] = (name, _gone(node, rule))


def _gone(node: _Node, rule: str) -> _Node:
    members = items = None
    if node.members is not None:
        members = [(name, _gone(child, child.rule)) for name, child in node.members if child.sign != "+"]
    if node.items is not None:
        items = [_gone(child, child.rule) for child in node.items if child.sign != "+"]
    return _Node(scalar=node.scalar, members=members, items=items, sign="-", rule=rule)


def _replaced(node: _Node, value: Any, rule: str) -> list[_Node]:
    """Return the nodes that replace a node. Parts that the old and the new value share are kept."""
    value = _plain(value)
    if node.sign == " " and node.members is not None and isinstance(value, dict) and value:
        members: list[tuple[str, _Node]] = []
        for name, child in node.members:
            if child.sign == "-":
                members.append((name, child))
            elif name in value:
                members += [(name, part) for part in _kept_or_replaced(child, value[name], rule)]
            elif child.sign == " ":
                members.append((name, _gone(child, rule)))
        present = {name for name, child in node.members if child.sign != "-"}
        members += [(name, _node(item, "+", rule)) for name, item in value.items() if name not in present]
        return [_Node(members=members)]
    if node.sign == " " and node.items is not None and isinstance(value, list) and value:
        return [_Node(items=_merged_items(node.items, value, rule))]
    return [_node(value, "+", rule)] if node.sign == "+" else [_gone(node, rule), _node(value, "+", rule)]


def _kept_or_replaced(node: _Node, value: Any, rule: str) -> list[_Node]:
    return [node] if _value(node) == value else _replaced(node, value, rule)


def _merged_items(items: list[_Node], value: list[Any], rule: str) -> list[_Node]:
    live = [item for item in items if item.sign != "-"]
    before = [json.dumps(_value(item), sort_keys=True) for item in live]
    after = [json.dumps(item, sort_keys=True) for item in value]
    merged: list[_Node] = [item for item in items if item.sign == "-"]
    for tag, first, last, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            merged += live[first:last]
        else:
            merged += [_gone(item, rule) for item in live[first:last] if item.sign == " "]
            merged += [_node(item, "+", rule) for item in value[start:end]]
    return merged


def _value(node: _Node) -> Any:
    if node.members is not None:
        return {name: _value(child) for name, child in node.members if child.sign != "-"}
    if node.items is not None:
        return [_value(child) for child in node.items if child.sign != "-"]
    return node.scalar


def _plain(value: Any) -> Any:
    """Return a patch's value as JSON; parts may already be encoded."""
    return orjson.loads(orjson.dumps(value))


# --- printing ---------------------------------------------------------------------------------------------------------


def _lines(node: _Node, depth: int) -> Iterator[Line]:
    pad = "  " * depth
    for name, child in node.members or ():
        if _is_block(child):
            yield Line(child.sign, f"{pad}{_quoted(name)}:", child.rule)
            # Lists are indented like their key, as kubectl prints them.
            yield from _lines(child, depth if child.items is not None else depth + 1)
        else:
            yield Line(child.sign, f"{pad}{_quoted(name)}: {_scalar(child)}", child.rule)
    for item in node.items or ():
        yield from _item_lines(item, depth)


def _item_lines(item: _Node, depth: int) -> Iterator[Line]:
    pad = "  " * depth
    if not _is_block(item):
        yield Line(item.sign, f"{pad}- {_scalar(item)}", item.rule)
        return
    first, *rest = _lines(item, depth + 1)
    if first.sign == item.sign:
        yield Line(first.sign, f"{pad}- {first.text[len(pad) + 2 :]}", item.rule or first.rule)
    else:
        # The item was kept but its first member was not: the dash gets its own line.
        yield Line(item.sign, f"{pad}-", item.rule)
        yield first
    yield from rest


def _is_block(node: _Node) -> bool:
    return bool(node.members) or bool(node.items)


def _scalar(node: _Node) -> str:
    if node.members is not None:
        return "{}"
    if node.items is not None:
        return "[]"
    return _quoted(node.scalar) if isinstance(node.scalar, str) else json.dumps(node.scalar)


def _quoted(text: str) -> str:
    """Return the text as a YAML scalar on one line."""
    style = None if text.isprintable() else '"'
    return (
        yaml.safe_dump(text, default_style=style, width=sys.maxsize, allow_unicode=True).removesuffix("...\n").strip()
    )
