"""CEL as it is registered: what a real server's compiler would not take, as far as it shows without its type checker.

Names that nothing declares, fields that a schema does not have, and constant conditions of the wrong type are found.
Whether operators fit their operands is left to the evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from app.sandbox.apiserver.cel import CelError, compiled

Schema: TypeAlias = Mapping[str, Any]

#: What match conditions of webhooks may speak of.
REQUEST_VARIABLES: Final = frozenset({"object", "oldObject", "request", "authorizer"})
#: What rules of a schema may speak of.
RULE_VARIABLES: Final = frozenset({"self", "oldSelf"})
#: Names of types and of libraries, which the parser takes for variables.
_BUILT_IN: Final = frozenset(
    {"bool", "bytes", "double", "dyn", "duration", "int", "list", "map", "null_type", "string", "timestamp", "type"}
    | {"uint", "base64", "cel", "cidr", "format", "google", "ip", "lists", "math", "optional", "quantity", "regex"}
    | {"semver", "sets", "strings", "url"}
)
_TOKEN: Final = re.compile(
    r"""[rRbB]?"(?:\\.|[^"\\])*" | [rRbB]?'(?:\\.|[^'\\])*' | [A-Za-z_]\w* | \d[\w.]* | \.\? | \S""",
    re.VERBOSE | re.DOTALL,
)
_BOUND: Final = re.compile(
    r"\.(?:all|exists|exists_one|map|filter|existsOne)\(\s*([A-Za-z_]\w*)\s*,|cel\.bind\(\s*([A-Za-z_]\w*)\s*,"
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_TYPES: Final = {bool: "bool", int: "int", float: "double", str: "string", bytes: "bytes", list: "list", dict: "map"}
_EVERY_OBJECT: Final = frozenset({"apiVersion", "kind", "metadata"})


def fault(source: str, variables: frozenset[str], schema: Schema | None = None, *, top: bool = False) -> str:
    """What is wrong with a condition, in the words of a real server; "" where nothing is.

    ``schema``: that of ``self``; ``top``: of a whole object.
    """
    try:
        program = compiled(source).program
    except CelError as error:
        return str(error)
    bound = {name for pair in _BOUND.findall(source) for name in pair if name}
    names = set(program.variables())
    unknown = names - variables - bound - _BUILT_IN
    for name, at in _names(source):
        if name in unknown:
            return _failed(source, at, f"undeclared reference to '{name}' (in container '')")
    if schema is not None and (found := _unknown_field(source, schema, top=top)):
        return found
    if not names:
        value = compiled(source).evaluate({})
        if not isinstance(value, bool):
            return f"must evaluate to bool but got {_TYPES.get(type(value), 'null_type')}"
    return ""


def _names(source: str) -> Iterator[tuple[str, int]]:
    """The names that are no fields, with where they stand."""
    before = ""
    for match in _TOKEN.finditer(source):
        if _NAME.fullmatch(match.group()) and before not in (".", ".?"):
            yield match.group(), match.start()
        before = match.group()


def _unknown_field(source: str, schema: Schema, *, top: bool) -> str:
    """The first field selected from ``self`` that its schema does not have."""
    tokens = [(match.group(), match.start()) for match in _TOKEN.finditer(source)]
    texts = [text for text, _ in tokens] + ["", "", ""]
    for index, text in enumerate(texts):
        if text not in RULE_VARIABLES or (index and texts[index - 1] in (".", ".?")):
            continue
        at, here, whole = index + 1, schema, top
        while texts[at] == "." and _NAME.fullmatch(texts[at + 1]) and texts[at + 2] != "(":
            name, properties = texts[at + 1], here.get("properties") or {}
            if here.get("type") != "object" or "additionalProperties" in here or "__" in name:
                break
            if name in _EVERY_OBJECT and (whole or here.get("x-kubernetes-embedded-resource")):
                break
            if name not in properties:
                return _failed(source, tokens[at][1], f"undefined field '{name}'")
            at, here, whole = at + 2, properties[name], False
    return ""


def _failed(source: str, at: int, why: str) -> str:
    line = source.count("\n", 0, at)
    column = at - (source.rfind("\n", 0, at) + 1)
    shown = source.split("\n")[line]
    return f"compilation failed: ERROR: <input>:{line + 1}:{column + 1}: {why}\n | {shown}\n | {'.' * column}^"
