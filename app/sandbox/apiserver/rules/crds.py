"""Rules for CustomResourceDefinitions and their schemas."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from app.api.structural import unknown_fields
from app.kube.fielderrors import FieldError, GoLiteral, Path, forbidden, invalid, not_supported, required
from app.kube.regex import PatternError, compile_re2
from app.kube.validation import is_dns1035_label, is_dns1123_subdomain
from app.sandbox.apiserver.cel import RULE_VARIABLES, fault
from app.sandbox.apiserver.customvalidation import schema_errors
from app.sandbox.apiserver.rules.webhooks import url_errors

# Schemas: structural rules, valid defaults, list types.
#
# Source: Kubernetes 1.34, apiextensions-apiserver/pkg/apiserver/schema and pkg/apis/apiextensions/validation.

Json: TypeAlias = dict[str, Any]

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_LIST_TYPES: Final = ("atomic", "set", "map")
_RULES: Final = "x-kubernetes-validations"
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
#: Keywords that only the schema itself may have, not its anyOf, oneOf, allOf and not branches.
_STRUCTURAL: Final = ("additionalProperties", "default", "description", "nullable", "title", "type", _PRESERVE)


def root_errors(schema: Json, path: Path) -> list[FieldError]:
    """Return all errors of a version's schema."""
    # Cached, because schemas are long and most writes to a CRD leave them unchanged.
    return list(_root_errors(orjson.dumps(schema), path))


@lru_cache(64)
def _root_errors(raw: bytes, path: Path) -> tuple[FieldError, ...]:
    schema: Json = orjson.loads(raw)
    found: list[FieldError] = []
    if not schema.get("type"):
        found.append(required(path.child("type"), "must not be empty at the root"))
    elif schema["type"] != "object":
        found.append(invalid(path.child("type"), schema["type"], "must be object at the root"))
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    if set(metadata.get("properties") or ()) - {"name", "generateName"}:
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        found.append(forbidden(path.child("properties").key("metadata"), detail))
    return (*found, *_errors(schema, path, top=True))


def _errors(schema: Json, path: Path, *, top: bool = False) -> Iterator[FieldError]:
    kind = schema.get("type")
    if schema.get("$ref"):
        yield forbidden(path.child("$ref"), "$ref is not supported")
        return
    if kind and kind not in _TYPES and not top:
        yield not_supported(path.child("type"), kind, _TYPES)
        return
    if not kind and not top and not schema.get(_INT_OR_STRING) and not schema.get(_PRESERVE):
        yield required(path.child("type"), "must not be empty for specified object fields")
    yield from _words(schema, path)
    yield from _list_errors(schema, path)
    yield from _default_errors(schema, path)
    yield from _rule_faults(schema, path, top=top)
    for name, child in (schema.get("properties") or {}).items():
        if not (top and name == "metadata"):
            yield from _errors(child, path.child("properties").key(name))
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _errors(schema[name], path.child(name))
    for name in _JUNCTORS:
        for index, child in enumerate(schema.get(name) or ()):
            yield from _bare_errors(child, path.child(name).index(index), schema)


def _words(schema: Json, path: Path) -> Iterator[FieldError]:
    """Report forbidden keywords and forbidden values of keywords."""
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(path.child("uniqueItems"), detail)
    if schema.get("additionalProperties") is False:
        yield forbidden(path.child("additionalProperties"), "additionalProperties cannot be set to false")
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), dict):
        yield forbidden(path.child("additionalProperties"), "additionalProperties and properties are mutual exclusive")
    if schema.get(_PRESERVE) is False:
        yield invalid(path.child(_PRESERVE), False, "must be true or undefined")
    if isinstance(schema.get("items"), list):
        yield forbidden(path.child("items"), "items must be a schema object and not an array")
    elif schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        yield required(path.child("items"), "must be specified")
    if pattern := schema.get("pattern"):
        try:
            compile_re2(pattern)
        except PatternError as error:
            yield invalid(path.child("pattern"), pattern, f"must be a valid regular expression, but isn't: {error}")


def _list_errors(schema: Json, path: Path) -> Iterator[FieldError]:
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
    items: Json = schema["items"] if isinstance(schema.get("items"), dict) else {}
    if kind is not None and kind not in _LIST_TYPES:
        yield not_supported(path.child("x-kubernetes-list-type"), kind, _LIST_TYPES)
    if kind == "map" and not keys:
        at = path.child("x-kubernetes-list-map-keys")
        yield required(at, "must not be empty if x-kubernetes-list-type is map")
    if kind == "set" and items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        at = path.child("items").child("x-kubernetes-map-type")
        detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield invalid(at, GoLiteral("null"), detail)
    for key in keys:
        child = (items.get("properties") or {}).get(key) or {}
        if key not in (items.get("required") or ()) and "default" not in child:
            at = path.child("items").child("properties").key(key).child("default")
            detail = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            yield required(at, detail)


def _default_errors(schema: Json, path: Path) -> Iterator[FieldError]:
    if schema.get("default") is None:
        return
    at = path.child("default")
    if unknown_fields(schema, schema["default"], Path("default")):
        yield invalid(at, schema["default"], "must not have unknown fields")
    for error in schema_errors(schema, schema["default"], Path()):
        yield dataclasses.replace(error, field=f"{at}{error.field}")


def _rule_faults(schema: Json, path: Path, *, top: bool) -> Iterator[FieldError]:
    """Report CEL rules that do not compile."""
    for index, rule in enumerate(schema.get(_RULES) or ()):
        if wrong := fault(rule.get("rule") or "", RULE_VARIABLES, schema, top=top):
            shown = {
                "Rule": rule.get("rule") or "",
                "Message": rule.get("message") or "",
                "MessageExpression": rule.get("messageExpression") or "",
                "Reason": rule.get("reason"),
                "FieldPath": rule.get("fieldPath") or "",
                "OptionalOldSelf": rule.get("optionalOldSelf"),
            }
            text = orjson.dumps(shown).decode()
            for char in "<>&":
                text = text.replace(char, f"\\u{ord(char):04x}")
            yield invalid(path.child(_RULES).index(index).child("rule"), GoLiteral(text), wrong)


def _bare_errors(schema: Json, path: Path, around: Json) -> Iterator[FieldError]:
    """Report anyOf, oneOf, allOf and not branches with keywords that the rules for structural schemas forbid there."""
    int_or_string = around.get(_INT_OR_STRING)
    for name in _STRUCTURAL:
        if schema.get(name) and not (int_or_string and name == "type"):
            yield forbidden(path.child(name), "must be empty to be structural")
    for name, child in (schema.get("properties") or {}).items():
        yield from _bare_errors(child, path.child("properties").key(name), {})


# CustomResourceDefinitions: initial status and validation.
#
# Source: Kubernetes 1.34, apiextensions-apiserver/pkg/apis/apiextensions/validation. A real server moves the parts that
# all versions have in common to the top level, and its messages name them there: ``spec.validation`` if all schemas are
# equal.

SPEC: Final = Path("spec")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
#: Fields of a version that move to the top level if they are equal in all versions.
_SHARED: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_APPROVAL: Final = "api-approved.kubernetes.io"


def prepare(crd: Json) -> None:
    """Initialize the status of a new definition. It is served only once its names are accepted."""
    stored = [version["name"] for version in crd["spec"].get("versions") or () if version.get("storage")][:1]
    names = {"kind": "", "plural": ""}
    crd["status"] = {"conditions": None, "acceptedNames": names, "storedVersions": stored}


def errors(crd: Json) -> list[FieldError]:
    """Return all errors of a definition."""
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    found: list[FieldError] = []
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    # The name and group of an existing definition are immutable.
    if crd["metadata"].get("name") != wanted and not crd["metadata"].get("resourceVersion"):
        found.append(invalid("metadata.name", crd["metadata"].get("name") or "", _NAME_MESSAGE))
    found += _group_errors(spec.get("group") or "")
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        at = SPEC.child("scope")
        given = spec.get("scope")
        found.append(not_supported(at, given, ("Cluster", "Namespaced")) if given else required(at))
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        found.append(invalid(SPEC.child("preserveUnknownFields"), True, detail))
    found += _version_errors(spec.get("versions"))
    found += _name_errors(names)
    found += _conversion_errors(spec.get("conversion") or {}, SPEC.child("conversion"))
    found += _stored_errors(crd, spec.get("versions") or [])
    return found + _approval_errors(crd)


_NAME_MESSAGE: Final = 'must be spec.names.plural+"."+spec.group'


def _group_errors(group: str) -> list[FieldError]:
    at = SPEC.child("group")
    if not group:
        return [required(at)]
    found = [invalid(at, group, message) for message in is_dns1123_subdomain(group)]
    if not found and "." not in group:
        found.append(invalid(at, group, "should be a domain with at least one dot"))
    return found


def _approval_errors(crd: Json) -> list[FieldError]:
    """Require an approval annotation for groups owned by Kubernetes."""
    group = (crd.get("spec") or {}).get("group") or ""
    if not group.endswith((".k8s.io", ".kubernetes.io")) or (crd["metadata"].get("annotations") or {}).get(_APPROVAL):
        return []
    detail = (
        f'protected groups must have approval annotation "{_APPROVAL}", see '
        "https://github.com/kubernetes/enhancements/pull/1111"
    )
    return [required(Path("metadata").child("annotations").key(_APPROVAL), detail)]


def _name_errors(names: Json) -> list[FieldError]:
    at = SPEC.child("names")
    found: list[FieldError] = []
    for name in ("plural", "singular", "kind", "listKind"):
        value = names.get(name) or ""
        if not value:
            found.append(required(at.child(name)))
        elif name in ("plural", "singular"):
            found += [invalid(at.child(name), value, message) for message in is_dns1035_label(value)]
        else:
            mixed = "may have mixed case, but should otherwise match: "
            found += [invalid(at.child(name), value, f"{mixed}{text}") for text in is_dns1035_label(value.lower())]
    for name in ("shortNames", "categories"):
        for index, value in enumerate(names.get(name) or ()):
            here = at.child(name).index(index)
            found += [invalid(here, value, message) for message in is_dns1035_label(value)]
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        found.append(invalid(at.child("listKind"), names["listKind"], "kind and listKind may not be the same"))
    return found


# ---- versions


def _version_errors(given: list[Json] | None) -> list[FieldError]:
    at = SPEC.child("versions")
    versions = given or []
    found: list[FieldError] = []
    shared = {name for name in _SHARED if all(one.get(name) == versions[0].get(name) for one in versions)}
    for index, version in enumerate(versions):
        here = at.index(index)
        name = version.get("name") or ""
        found += [invalid(here.child("name"), name, message) for message in is_dns1035_label(name)]
        found += _schema_errors(version, here, SPEC if "schema" in shared else None, first=index == 0)
        for part, judge in (("additionalPrinterColumns", _columns), ("subresources", _subresources)):
            if part not in shared:
                found += judge(version.get(part), here.child(part))
        if "selectableFields" not in shared:
            found += _selectable(version, here.child("selectableFields"))
    names = [version.get("name") for version in versions]
    if len(set(names)) < len(names):
        found.append(invalid(at, _internal(versions, shared), "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        shown = None if given is None else _internal(versions, shared)
        found.append(_invalid(at, shown, "must have exactly one version marked as storage version"))
    if versions:
        found += _shared_errors(versions[0], shared)
    return found


def _shared_errors(version: Json, shared: set[str]) -> list[FieldError]:
    """Validate the parts that all versions share, and the name of the first version."""
    name = version.get("name") or ""
    found = [invalid(SPEC.child("version"), name, message) for message in is_dns1035_label(name)]
    for part, judge in (("additionalPrinterColumns", _columns), ("subresources", _subresources)):
        if part in shared:
            found += judge(version.get(part), SPEC.child(part))
    if "selectableFields" in shared:
        found += _selectable(version, SPEC.child("selectableFields"))
    return found


def _schema_errors(version: Json, here: Path, shared: Path | None, *, first: bool) -> list[FieldError]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        return [required(here.child("schema").child("openAPIV3Schema"))]
    if shared is not None and not first:
        return []
    place = here.child("schema") if shared is None else shared.child("validation")
    return root_errors(schema, place.child("openAPIV3Schema"))


def _internal(versions: list[Json], shared: set[str]) -> list[Json]:
    """Return the versions in the server's internal form."""
    return [
        {
            "Name": version.get("name", ""),
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
            **{part[0].upper() + part[1:]: None if part in shared else version.get(part) for part in _SHARED},
        }
        for version in versions
    ]


def _invalid(at: Path, value: Any, detail: str) -> FieldError:
    """Return an error that shows the value as JSON; null is shown without quotes."""
    return invalid(at, GoLiteral("null") if value is None else value, detail)


def _stored_errors(crd: Json, versions: list[Json]) -> list[FieldError]:
    at = Path("status").child("storedVersions")
    stored = (crd.get("status") or {}).get("storedVersions") or []
    if not stored:
        return [_invalid(at, None, "must have at least one stored version")]
    storing = [version.get("name") for version in versions if version.get("storage")]
    if storing and storing[-1] not in stored:
        return [invalid(at, stored, f"must have the storage version {storing[-1]}")]
    return []


def _columns(columns: list[Json] | None, path: Path) -> list[FieldError]:
    found: list[FieldError] = []
    types, formats = ",".join(_COLUMN_TYPES), ",".join(_COLUMN_FORMATS)
    for index, column in enumerate(columns or ()):
        here = path.index(index)
        if not column.get("name"):
            found.append(required(here.child("name")))
        if not column.get("type"):
            found.append(required(here.child("type"), f"must be one of {types}"))
        elif column["type"] not in _COLUMN_TYPES:
            found.append(invalid(here.child("type"), column["type"], f"must be one of {types}"))
        if column.get("format") and column["format"] not in _COLUMN_FORMATS:
            found.append(invalid(here.child("format"), column["format"], f"must be one of {formats}"))
        json_path = column.get("jsonPath") or ""
        if not json_path:
            found.append(required(here.child("JSONPath")))
        elif not json_path.startswith("."):
            found.append(invalid(here.child("JSONPath"), json_path, "must be a simple json path starting with ."))
    return found


def _subresources(declared: Json | None, path: Path) -> list[FieldError]:
    scale = (declared or {}).get("scale")
    if scale is None:
        return []
    found: list[FieldError] = []
    for name, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        value, at = scale.get(name) or "", path.child("scale").child(name)
        if not value:
            found.append(required(at))
        elif not value.startswith(root):
            found.append(invalid(at, value, f"should be a json path under {root.rstrip('.')}"))
    return found


def _selectable(version: Json, path: Path) -> list[FieldError]:
    """Require selectable fields to be simple paths to fields in the schema."""
    found: list[FieldError] = []
    for index, field in enumerate(version.get("selectableFields") or ()):
        here: Any = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        for name in field.get("jsonPath", "").lstrip(".").split("."):
            here = (here.get("properties") or {}).get(name) or {}
        if here.get("type") not in ("string", "integer", "boolean"):
            detail = "is an invalid path: does not refer to a valid field"
            found.append(invalid(path.index(index).child("jsonPath"), field.get("jsonPath", ""), detail))
    return found


# ---- conversion


def _conversion_errors(conversion: Json, path: Path) -> list[FieldError]:
    strategy = conversion.get("strategy")
    webhook = conversion.get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions")
    found: list[FieldError] = []
    unwanted = "should not be set when strategy is not set to Webhook"
    if strategy not in ("None", "Webhook"):
        found.append(not_supported(path.child("strategy"), strategy or "", ("None", "Webhook")))
    elif strategy == "None":
        if client:
            found.append(forbidden(path.child("webhookClientConfig"), unwanted))
        if versions:
            found.append(forbidden(path.child("conversionReviewVersions"), unwanted))
    else:
        at = path.child("webhookClientConfig")
        if not client:
            found.append(required(at, "required when strategy is set to Webhook"))
        elif client.get("url"):
            found += url_errors(client["url"], at.child("url"))
        if not versions:
            found.append(required(path.child("conversionReviewVersions")))
    return found


def update_errors(crd: Json, old: Json) -> list[FieldError]:
    """Return errors for changed immutable fields of an established definition, and for removed versions that are still
    in storage."""
    new, before = crd["spec"], old.get("spec") or {}
    found: list[FieldError] = []
    if new.get("group") != before.get("group"):
        found.append(invalid(SPEC.child("group"), new.get("group"), "field is immutable"))
    conditions = (old.get("status") or {}).get("conditions") or ()
    if any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions):
        if new.get("scope") != before.get("scope"):
            found.append(invalid(SPEC.child("scope"), new.get("scope"), "field is immutable"))
        if new["names"].get("kind") != (before.get("names") or {}).get("kind"):
            at = SPEC.child("names").child("kind")
            found.append(invalid(at, new["names"].get("kind"), "field is immutable"))
    names = {version.get("name") for version in new.get("versions") or ()}
    for index, stored in enumerate((old.get("status") or {}).get("storedVersions") or ()):
        if stored not in names:
            at = Path("status").child("storedVersions").index(index)
            detail = (
                f"missing from spec.versions; {stored} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {stored} and removes "
                f"{stored} from status.storedVersions"
            )
            found.append(invalid(at, stored, detail))
    return found
