"""Read Kubernetes objects from YAML or JSON files and keep the line numbers of their fields.

YAML is read as kubectl reads it: dates and ``80:80`` stay strings, and duplicate keys are errors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

SUFFIXES: Final = (".yaml", ".yml", ".json")
_DEEPEST: Final = 100
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


class ManifestError(ValueError):
    """A file cannot be used. The message starts with file and line."""


class UnreadableError(ManifestError):
    """A file cannot be read at the moment. It may become readable without changing."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object in a file."""

    file: str
    object: dict[str, Any]
    node: yaml.MappingNode

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    @property
    def kind(self) -> str:
        return str(self.object.get("kind") or "")

    @property
    def name(self) -> str:
        metadata = self.object.get("metadata")
        return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""

    def at(self, path: str = "") -> str:
        """Return ``file:line`` of a field such as ``spec.containers[0].name``, or of its closest existing ancestor."""
        node: yaml.Node = self.node
        line = self.line
        for match in _STEP.finditer(path):
            found = _member(node, match[1], match[2])
            if found is None:
                break
            line, node = found
        return f"{self.file}:{line}"


def read_manifests(path: Path) -> list[Manifest]:
    """Read all objects in a file, including the items of lists. Raises ManifestError."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ManifestError(
            f"{path}: is not UTF-8: byte 0x{error.object[error.start]:02x} at offset {error.start}"
        ) from None
    return parse_manifests(text, str(path))


def manifest_files(folder: Path) -> list[Path]:
    """Return the manifest files in a folder and its subfolders, sorted.

    Hidden files are skipped, such as those of version control and the ``..data`` folder of a mounted ConfigMap, which
    contains each file a second time. Raises OSError.
    """

    def told(error: OSError) -> None:
        if not isinstance(error, PermissionError):  # unreadable folders are skipped
            raise error

    found = list[Path]()
    for where, folders, files in os.walk(folder, onerror=told):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(where, name) for name in files if not name.startswith(".")]
    return sorted(path for path in found if path.suffix in SUFFIXES)


def parse_manifests(text: str, file: str) -> list[Manifest]:
    """Parse all objects in a YAML or JSON text. Raises ManifestError."""
    found: list[Manifest] = []
    loader: Any = None
    try:
        _check_depth(text, file)
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is None or _is_null(node):
                continue
            _check(node, file)
            found += _objects(loader, node, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ManifestError(f"{file}{line}: is not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        # PyYAML and libyaml count positions differently; one reports the character as a string, the other as a number.
        given: str | bytes | int = error.character
        code = given if isinstance(given, int) else ord(given)
        number = text.count("\n", 0, max(0, text.find(chr(code)))) + 1
        raise ManifestError(f"{file}:{number}: is not YAML: character U+{code:04X} is not allowed") from None
    finally:
        if loader is not None:
            loader.dispose()
    return found


def _check_depth(text: str, file: str) -> None:
    """Limit the depth of the event stream: the C parser builds trees recursively and would overflow its stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise ManifestError(f"{file}: is nested deeper than {_DEEPEST} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _objects(loader: Any, node: yaml.Node, file: str) -> Iterator[Manifest]:
    if not isinstance(node, yaml.MappingNode):
        raise ManifestError(f"{file}:{node.start_mark.line + 1}: expected an object with apiVersion and kind")
    document = loader.construct_document(node)
    if str(document.get("kind") or "").endswith("List") and isinstance(document.get("items"), list):
        items = next(value for key, value in node.value if key.value == "items")
        for item, item_node in zip(document["items"], items.value, strict=True):
            if not isinstance(item, dict):
                raise ManifestError(f"{file}:{item_node.start_mark.line + 1}: expected an object")
            yield Manifest(file, item, item_node)
        return
    yield Manifest(file, document, node)


def _member(node: yaml.Node, key: str | None, index: str | None) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        wanted = key if key is not None else index
        for name, value in node.value:
            if name.value == wanted:
                return int(name.start_mark.line) + 1, value
    if isinstance(node, yaml.SequenceNode) and index is not None and index.isdigit() and int(index) < len(node.value):
        item = node.value[int(index)]
        return int(item.start_mark.line) + 1, item
    return None


def _check(node: yaml.Node, file: str, around: tuple[int, ...] = ()) -> None:
    """Check that keys are unique strings, and that no alias refers to a node that contains it."""
    if id(node) in around:
        raise ManifestError(f"{file}:{node.start_mark.line + 1}: an alias refers to its own ancestor")
    inside = (*around, id(node))
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            where = f"{file}:{key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise ManifestError(f"{where}: a key must be a string")
            if key.value in seen:
                raise ManifestError(f"{where}: duplicate key {key.value!r}")
            seen.add(key.value)
            _check(value, file, inside)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check(item, file, inside)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


#: The C parser, if PyYAML was built with it, is ten times as fast.
_Base: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Loads YAML with the scalar types of JSON: null, booleans and numbers; every other scalar is a string."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct one value. Keys are always strings."""
        if isinstance(node, yaml.MappingNode):
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    key.tag = "tag:yaml.org,2002:str"
        return super().construct_object(node, deep)


_NUMBERS: Final = {
    "tag:yaml.org,2002:int": re.compile(
        r"^(?:[-+]?0b[01_]+|[-+]?0o?[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$"
    ),
    "tag:yaml.org,2002:float": re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if digits.startswith("0") and digits.strip("0123456789") == "" and len(digits) > 1:
        return sign * int(digits, 8)
    return sign * int(digits, 0)


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
