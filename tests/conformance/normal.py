"""Answers without parts that vary: names, times, uids, versions, tokens and ports become placeholders."""

import re
from collections.abc import Sequence
from typing import Any

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PORT = re.compile(r"127\.0\.0\.1:\d+")
_AGE = re.compile(r"\d+m?s")
#: The age of a fixed date depends on when the case runs.
_LONG_AGO = re.compile(r"\b(\d+y\d+d|\d+y|\d+d)\b")
_SUFFIX = re.compile(r"(?<=[-.])[bcdfghjklmnpqrstvwxz2456789]{5}(?![a-z0-9])")
_GENERATED = re.compile(r"\bgen-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_SERVICE_ADDRESS = re.compile(r"\b10\.(96|231)\.\d+\.\d+\b")
_OBJECT_IN_TEXT = re.compile(r'Invalid value: "\{.*\}"(?=: )')
_VERSION_IN_TEXT = re.compile(
    r'(?<=resourceVersion\\":\\")\d+|(?<="resourceVersion":")\d+|(?<=current: )\d+|(?<=in record \()\d+'
    r"|(?<=version: 1 \()\d+"
)
_VERSIONS = ("resourceVersion", "continue")


class Normaliser:
    """The placeholders of one case: the same uid has the same placeholder in all its answers."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._uids: dict[str, str] = {}

    def answer(self, body: Any, *, keep: Sequence[str] = (), drop: Sequence[str] = (), managed: bool = False) -> Any:
        if isinstance(body, dict | list):
            body = self._value(_without_managed(body, managed))
            if keep:
                body = _kept(body, keep)
            for path in drop:
                _drop(body, path.split("."))
            return body
        return self._text(body) if isinstance(body, str) else body

    def _value(self, value: Any, key: str = "") -> Any:
        # The user's name differs between servers.
        if key == "userInfo" and isinstance(value, dict):
            return {name: value[name] for name in ("groups",) if name in value}
        if isinstance(value, dict):
            generated = isinstance(value.get("generateName"), str)
            found = {self._text(name): self._value(child, name) for name, child in value.items()}
            if generated and isinstance(found.get("name"), str):
                found["name"] = _SUFFIX.sub("RANDOM", found["name"])
            return found
        if key == "causes" and isinstance(value, list):
            # A real server validates metadata more than once and repeats the errors.
            causes = [self._value(cause) for index, cause in enumerate(value) if cause not in value[:index]]
            # The order of conflicting managers is random.
            conflicts = all(cause.get("reason") == "FieldManagerConflict" for cause in causes)
            return sorted(causes, key=lambda cause: str(cause["message"])) if conflicts else causes
        if key == "managedFields" and isinstance(value, list):
            # Their order and times depend on whether two requests fall within one second. Controllers of a real server
            # write at other times and do not belong to the case.
            entries = [{name: child for name, child in one.items() if name != "time"} for one in value]
            entries = [one for one in entries if one.get("manager") != "kube-controller-manager"]
            return [self._value(one) for one in sorted(entries, key=_manager)]
        if key == "resources" and value and all(isinstance(one, dict) and "name" in one for one in value):
            # A real server lists the resources of a custom group in any order.
            return [self._value(one) for one in sorted(value, key=lambda one: str(one["name"]))]
        if isinstance(value, list):
            return [self._cell(child) if key == "cells" else self._value(child) for child in value]
        if isinstance(value, str):
            if key in _VERSIONS and value:
                return f"<{key}>"
            return self._text(value)
        return value

    def _cell(self, value: Any) -> Any:
        if isinstance(value, str) and _AGE.fullmatch(value):
            return "<age>"
        if isinstance(value, str):
            # Parts of a uid may look like days.
            return _LONG_AGO.sub("<long>", self._text(value))
        return self._value(value)

    def _text(self, text: str) -> str:
        text = text.replace(self._namespace, "NS")
        text = _UID.sub(lambda match: self._uids.setdefault(match.group(), f"<uid-{len(self._uids) + 1}>"), text)
        text = _TIME.sub("<time>", text)
        text = _SERVICE_ADDRESS.sub("<address>", _GENERATED.sub("gen-RANDOM", text))
        text = _OBJECT_IN_TEXT.sub("Invalid value: <object>", text)
        text = _VERSION_IN_TEXT.sub("<resourceVersion>", text)
        return _PORT.sub("127.0.0.1:PORT", text)


def _manager(entry: Any) -> tuple[str, ...]:
    return tuple(str(entry.get(name, "")) for name in ("manager", "operation", "subresource", "apiVersion"))


def _without_managed(value: Any, managed: bool) -> Any:
    if managed or not isinstance(value, dict):
        return value
    found = dict(value)
    if isinstance(found.get("metadata"), dict) and "managedFields" in found["metadata"]:
        found["metadata"] = {key: child for key, child in found["metadata"].items() if key != "managedFields"}
    for key in ("items", "rows"):
        if isinstance(found.get(key), list):
            found[key] = [_without_managed(child, managed) for child in found[key]]
    if isinstance(found.get("object"), dict):
        found["object"] = _without_managed(found["object"], managed)
    return found


def _kept(body: Any, keep: Sequence[str]) -> Any:
    """Return the values at these paths; ``*`` stands for all items of a list or values of an object."""
    return {path: _at(body, path.split(".")) for path in keep}


def _at(value: Any, path: Sequence[str]) -> Any:
    if not path:
        return value
    if path[0] == "*":
        children = value.values() if isinstance(value, dict) else value or ()
        return [_at(child, path[1:]) for child in children]
    if isinstance(value, dict):
        return _at(value.get(path[0]), path[1:])
    if isinstance(value, list) and path[0].isdigit():
        return _at(value[int(path[0])], path[1:]) if int(path[0]) < len(value) else None
    return None


def _drop(value: Any, path: Sequence[str]) -> None:
    if isinstance(value, list):
        if path[0] == "*":
            for child in value:
                _drop(child, path[1:])
        elif path[0].isdigit() and int(path[0]) < len(value):
            _drop(value[int(path[0])], path[1:])
    elif isinstance(value, dict):
        if len(path) == 1:
            value.pop(path[0], None)
        elif path[0] == "*":
            for child in value.values():
                _drop(child, path[1:])
        elif path[0] in value:
            _drop(value[path[0]], path[1:])
