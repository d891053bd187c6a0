"""CEL expressions: evaluation, and validation when they are stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import cel


# A library evaluates the expressions. It does not support the optional selections ``a[?k]`` and ``a.?f``, so these are
# rewritten to ``optional(a, k)``. An optional value is a list of zero or one items.

_TOKEN: Final = re.compile(
    r"""\s+ | [rRbB]?"(?:\\.|[^"\\])*" | [rRbB]?'(?:\\.|[^'\\])*' | [A-Za-z_]\w* | \d[\w.]* | \.\? | \[\? | . """,
    re.VERBOSE | re.DOTALL,
)
_PARSER_WORDS: Final = re.compile(r"^Failed to parse expression '.*?': (?=ERROR: <input>)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_CLOSING: Final = {"(": ")", "[": "]", "[?": "]"}


#: Accessed fields, each with the fields accessed below it. An empty mapping means the whole value.
Parts: TypeAlias = dict[str, "Parts"]


class CelError(ValueError):
    """The expression does not compile, or its evaluation fails. The message is the one that Kubernetes reports."""


def _optional(container: Any, key: Any) -> list[Any]:
    """Return ``container[?key]`` as a list of zero or one items. The container may itself be optional."""
    if isinstance(container, list):
        if not container:
            return []
        container = container[0]
    if isinstance(container, Mapping) and key in container:
        return [container[key]]
    return []


def _or_value(optional: list[Any], default: Any) -> Any:
    return optional[0] if optional else default


def _has_value(optional: list[Any]) -> bool:
    return bool(optional)


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "optional": _optional,
    "orValue": _or_value,
    "hasValue": _has_value,
}
#: Available without loading the standard library: operators, macros, core functions and our own.
_PLAIN: Final = frozenset(
    [
        "!_",
        "-_",
        "@in",
        "@not_strictly_false",
        "_!=_",
        "_%_",
        "_&&_",
        "_*_",
        "_+_",
        "_-_",
        "_/_",
        "_<=_",
        "_<_",
        "_==_",
        "_>=_",
        "_>_",
        "_?_:_",
        "_[_]",
        "_||_",
        "bytes",
        "contains",
        "double",
        "duration",
        "endsWith",
        "hasValue",
        "int",
        "matches",
        "optional",
        "orValue",
        "size",
        "startsWith",
        "string",
        "timestamp",
        "uint",
    ]
)
#: Methods of an optional value.
_METHODS: Final = frozenset({"orValue", "hasValue"})


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression."""

    source: str
    program: cel.Program
    #: Whether the expression calls functions of the standard library.
    extended: bool = False
    #: The parts of each variable that the expression accesses.
    parts: Mapping[str, Parts] = field(default_factory=dict)

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Return the value of the expression. Raises :class:`CelError`."""
        import cel
        from cel.stdlib import add_stdlib_to_context

        try:
            # The library copies its input, which takes ten times as long as the evaluation: pass only the accessed
            # parts.
            given = {name: _selected(variables[name], parts) for name, parts in self.parts.items() if name in variables}
            context = cel.Context(variables=given, functions=dict(_FUNCTIONS))
            if self.extended:
                add_stdlib_to_context(context)
            return self.program.execute(context)
        except KeyError as error:
            why = f"no such key: {error.args[0] if error.args else ''}"
        except (ValueError, TypeError, RuntimeError) as error:
            why = str(error)
        raise CelError(f"expression '{self.source}' resulted in error: {why}")


@lru_cache(1024)
def compiled(source: str) -> Expression:
    """Compile an expression, once per source. Raises :class:`CelError`."""
    import cel

    try:
        text = rewritten(source)
        program = cel.compile(text)
        parts = _parts(text, program.variables())
        return Expression(source, program, extended=not _PLAIN.issuperset(program.functions()), parts=parts)
    except ValueError as error:
        words = _PARSER_WORDS.sub("", str(error), count=1).replace("\n| ", "\n | ")
        raise CelError(f"compilation failed: {words}") from None


def _parts(text: str, variables: Iterable[str]) -> dict[str, Parts]:
    """Return, by variable, the fields that an expression may access, such as ``object.spec.replicas``."""
    tokens = [token for token in _TOKEN.findall(text) if not token.isspace()]
    found: dict[str, Parts] = {name: {} for name in variables}
    whole: set[str] = set()
    for at, name in enumerate(tokens):
        if name not in found or name in whole or (at and tokens[at - 1] == "."):
            continue
        chain = _chain_after(tokens, at + 1)
        if not chain:
            whole.add(name)
            found[name] = {}
            continue
        _add(found[name], chain)
    return found


def _chain_after(tokens: list[str], at: int) -> list[str]:
    """Return the fields selected in sequence from this position, without a trailing method call."""
    chain: list[str] = []
    while tokens[at : at + 1] == ["."] and _NAME.fullmatch("".join(tokens[at + 1 : at + 2])):
        chain.append(tokens[at + 1])
        at += 2
    return chain[:-1] if tokens[at : at + 1] == ["("] else chain


def _add(parts: Parts, chain: list[str]) -> None:
    """Add a chain. A chain covers all longer chains that start with it."""
    for name in chain[:-1]:
        if name in parts and not parts[name]:
            return
        parts = parts.setdefault(name, {})
    parts[chain[-1]] = {}


def _selected(value: Any, parts: Parts) -> Any:
    """Return the value reduced to these parts."""
    if not parts or not isinstance(value, dict):
        return value
    return {name: _selected(value[name], below) for name, below in parts.items() if name in value}


def rewritten(source: str) -> str:
    """Replace optional selections with calls to ``optional``."""
    if "[?" not in source and ".?" not in source:
        return source
    return _Rewriter([token for token in _TOKEN.findall(source) if not token.isspace()]).text()


class _Rewriter:
    """Rewrites tokens in one pass."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def text(self) -> str:
        return self._until("")

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _until(self, closing: str) -> str:
        """Return the text up to a closing bracket and skip the bracket."""
        parts: list[str] = []
        while (word := self._peek()) and word != closing:
            if _NAME.fullmatch(word) or word in ("(", "[", "{") or word[-1:] in "\"'" or word[0].isdigit():
                parts.append(self._chain())
            else:
                parts.append(word)
                self._at += 1
            if parts[-1] in ("in",):
                parts[-1] = " in "
        self._at += 1
        return "".join(parts)

    def _chain(self) -> str:
        """Return a primary expression with its selections, calls and indexes."""
        word = self._peek()
        self._at += 1
        found = word + self._until(_CLOSING.get(word, "}")) + _CLOSING.get(word, "}") if word in "([{" else word
        if found == "in":
            return found
        viral = False
        while True:
            word = self._peek()
            if word == ".?" or (word == "." and viral and self._peek(2) != "("):
                viral = True
                found = f"optional({found}, '{self._peek(1)}')"
                self._at += 2
            elif word == "[?" or (word == "[" and viral):
                self._at += 1
                viral = True
                found = f"optional({found}, {self._until(']')})"
            elif word == "." and self._peek(1) in _METHODS and self._peek(2) == "(":
                name = self._peek(1)
                self._at += 3
                rest = self._until(")")
                found = f"{name}({found}, {rest})" if rest else f"{name}({found})"
                viral = False
            elif word == ".":
                found += f".{self._peek(1)}"
                self._at += 2
                viral = False
            elif word in ("(", "["):
                self._at += 1
                found += word + self._until(_CLOSING[word]) + _CLOSING[word]
            else:
                return found


# Checks of new expressions. They reject what a real server's compiler rejects, as far as possible without its type
# checker: undeclared names, fields missing from a schema, and constant conditions of the wrong type. Operand types are
# checked only during evaluation.

Schema: TypeAlias = Mapping[str, Any]

#: Variables of webhook match conditions.
REQUEST_VARIABLES: Final = frozenset({"object", "oldObject", "request", "authorizer"})
#: Variables of schema rules.
RULE_VARIABLES: Final = frozenset({"self", "oldSelf"})
#: Names of types and libraries, which the parser mistakes for variables.
_BUILT_IN: Final = frozenset(
    {"bool", "bytes", "double", "dyn", "duration", "int", "list", "map", "null_type", "string", "timestamp", "type"}
    | {"uint", "base64", "cel", "cidr", "format", "google", "ip", "lists", "math", "optional", "quantity", "regex"}
    | {"semver", "sets", "strings", "url"}
)
_CHECKED_TOKEN: Final = re.compile(
    r"""[rRbB]?"(?:\\.|[^"\\])*" | [rRbB]?'(?:\\.|[^'\\])*' | [A-Za-z_]\w* | \d[\w.]* | \.\? | \S""",
    re.VERBOSE | re.DOTALL,
)
_BOUND: Final = re.compile(
    r"\.(?:all|exists|exists_one|map|filter|existsOne)\(\s*([A-Za-z_]\w*)\s*,|cel\.bind\(\s*([A-Za-z_]\w*)\s*,"
)
_TYPES: Final = {bool: "bool", int: "int", float: "double", str: "string", bytes: "bytes", list: "list", dict: "map"}
_EVERY_OBJECT: Final = frozenset({"apiVersion", "kind", "metadata"})


def fault(source: str, variables: frozenset[str], schema: Schema | None = None, *, top: bool = False) -> str:
    """Return the server's message for an invalid condition, or "".

    ``schema`` is the schema of ``self``. ``top``: whether ``self`` is a whole object.
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
    """Return the names in an expression that are not fields, with their positions."""
    before = ""
    for match in _CHECKED_TOKEN.finditer(source):
        if _NAME.fullmatch(match.group()) and before not in (".", ".?"):
            yield match.group(), match.start()
        before = match.group()


def _unknown_field(source: str, schema: Schema, *, top: bool) -> str:
    """Return the first field selected from ``self`` that its schema lacks."""
    tokens = [(match.group(), match.start()) for match in _CHECKED_TOKEN.finditer(source)]
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
