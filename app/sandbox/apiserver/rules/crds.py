"""CustomResourceDefinitions: what a new one starts with, and what is wrong with one.

Source: Kubernetes 1.34, apiextensions-apiserver/pkg/apis/apiextensions/validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from app.kube.fielderrors import FieldError, GoLiteral, Path, forbidden, invalid, not_supported, required
from app.kube.validation import is_dns1035_label, is_dns1123_subdomain

Json: TypeAlias = dict[str, Any]

SPEC: Final = Path("spec")
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"


def prepare(crd: Json) -> None:
    """A new definition is served once its names are accepted; until then nothing is known of it."""
    stored = [version["name"] for version in crd["spec"].get("versions") or () if version.get("storage")]
    names = {"kind": "", "plural": ""}
    crd["status"] = {"conditions": None, "acceptedNames": names, "storedVersions": stored}


def errors(crd: Json) -> list[FieldError]:
    """Everything wrong with a definition."""
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    found: list[FieldError] = []
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if crd["metadata"].get("name") != wanted:
        found.append(invalid("metadata.name", crd["metadata"].get("name") or "", _NAME_MESSAGE))
    found += _group_errors(spec.get("group") or "")
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        at = SPEC.child("scope")
        given = spec.get("scope")
        found.append(not_supported(at, given, ("Cluster", "Namespaced")) if given else required(at))
    found += _version_errors(spec.get("versions") or [])
    found += _name_errors(names)
    found += _conversion_errors(spec.get("conversion") or {}, SPEC.child("conversion"))
    return found


_NAME_MESSAGE: Final = 'must be spec.names.plural+"."+spec.group'


def _group_errors(group: str) -> list[FieldError]:
    at = SPEC.child("group")
    if not group:
        return [required(at)]
    found = [invalid(at, group, message) for message in is_dns1123_subdomain(group)]
    if not found and "." not in group:
        found.append(invalid(at, group, "should be a domain with at least one dot"))
    return found


def _name_errors(names: Mapping[str, Any]) -> list[FieldError]:
    at = SPEC.child("names")
    found: list[FieldError] = []
    for name in ("plural", "singular", "kind", "listKind"):
        value = names.get(name) or ""
        if not value:
            found.append(required(at.child(name)))
            continue
        found += [invalid(at.child(name), value, message) for message in is_dns1035_label(value.lower())]
        if name in ("plural", "singular") and value != value.lower():
            found += [invalid(at.child(name), value, message) for message in is_dns1035_label(value)]
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        found.append(invalid(at.child("listKind"), names["listKind"], "kind and listKind may not be the same"))
    return found


def _version_errors(versions: list[Json]) -> list[FieldError]:
    at = SPEC.child("versions")
    found: list[FieldError] = []
    stored = 0
    # Where all versions have the same, messages speak of the fields that once were there for all.
    alike = _top_level(versions)
    seen: set[str] = set()
    for index, version in enumerate(versions):
        here = at.index(index)
        name = version.get("name") or ""
        found += [invalid(here.child("name"), name, message) for message in is_dns1035_label(name)]
        if name in seen:
            found.append(invalid(at, name, "must contain unique version names"))
        seen.add(name)
        stored += bool(version.get("storage"))
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        place = here.child("schema").child("openAPIV3Schema")
        if alike and schema is not None:
            place = SPEC.child("validation").child("openAPIV3Schema")
        if schema is None:
            found.append(required(place, "schemas are required"))
        else:
            found += _top_errors(schema, place)
        found += _column_errors(
            version.get("additionalPrinterColumns") or [], (SPEC if alike else here).child("additionalPrinterColumns")
        )
        found += _subresource_errors(version.get("subresources") or {}, (SPEC if alike else here).child("subresources"))
    if stored != 1:
        found.append(invalid(at, versions, "must have exactly one version marked as storage version"))
    if stored == 0:
        found.append(invalid("status.storedVersions", GoLiteral("null"), "must have at least one stored version"))
    return found


def _top_level(versions: list[Json]) -> bool:
    """Whether all versions have the same schema, subresources and columns."""
    parts = [
        [version.get(name) for name in ("schema", "subresources", "additionalPrinterColumns")] for version in versions
    ]
    return len(parts) == 1


def _top_errors(schema: Json, path: Path) -> list[FieldError]:
    found = list(_schema_errors(schema, path, top=True))
    if not schema.get("type"):
        found.append(required(path.child("type"), "must not be empty at the root"))
    elif schema["type"] != "object":
        found.append(invalid(path.child("type"), schema["type"], "must be object at the root"))
    return found


def _schema_errors(schema: Json, path: Path, *, top: bool = False) -> Iterator[FieldError]:
    """Structural rules: types everywhere, and a few words that are not allowed."""
    kind = schema.get("type")
    if kind and kind not in _TYPES:
        yield not_supported(path.child("type"), kind, _TYPES)
    if not kind and not top and not schema.get(_INT_OR_STRING) and not schema.get(_PRESERVE):
        yield required(path.child("type"), "must not be empty for specified object fields")
    if schema.get("uniqueItems"):
        yield forbidden(path.child("uniqueItems"), "uniqueItems cannot be set to true since the runtime complexity "
                        "becomes quadratic")  # fmt: skip
    if schema.get("additionalProperties") is False:
        yield forbidden(path.child("additionalProperties"), "additionalProperties cannot be set to false")
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), dict):
        yield forbidden(path.child("additionalProperties"), "additionalProperties and properties are mutual exclusive")
    if schema.get(_PRESERVE) is False:
        yield invalid(path.child(_PRESERVE), False, "must be true or undefined")
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield required(path.child("items"), "must be specified")
    for name, child in (schema.get("properties") or {}).items():
        yield from _schema_errors(child, path.child("properties").key(name))
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _schema_errors(schema[name], path.child(name))


def _column_errors(columns: list[Json], path: Path) -> list[FieldError]:
    found: list[FieldError] = []
    for index, column in enumerate(columns):
        here = path.index(index)
        if not column.get("name"):
            found.append(required(here.child("name")))
        if not column.get("type"):
            found.append(required(here.child("type"), f"must be one of {','.join(_COLUMN_TYPES)}"))
        elif column["type"] not in _COLUMN_TYPES:
            found.append(invalid(here.child("type"), column["type"], f"must be one of {','.join(_COLUMN_TYPES)}"))
        if not column.get("jsonPath"):
            found.append(required(here.child("jsonPath")))
    return found


def _subresource_errors(declared: Json, path: Path) -> list[FieldError]:
    scale = declared.get("scale")
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


def _conversion_errors(conversion: Json, path: Path) -> list[FieldError]:
    strategy = conversion.get("strategy")
    webhook = conversion.get("webhook")
    found: list[FieldError] = []
    if strategy not in ("None", "Webhook"):
        found.append(not_supported(path.child("strategy"), strategy or "", ("None", "Webhook")))
    elif strategy == "None" and webhook:
        found.append(forbidden(path.child("webhook"), "should not be set when strategy is not set to Webhook"))
    elif strategy == "Webhook":
        if not webhook or not webhook.get("clientConfig"):
            at = path.child("webhook").child("clientConfig")
            found.append(required(at, "required when strategy is set to Webhook"))
        elif not webhook.get("conversionReviewVersions"):
            found.append(required(path.child("webhook").child("conversionReviewVersions")))
    return found


def update_errors(crd: Json, old: Json) -> list[FieldError]:
    """What of an established definition cannot change, and versions that objects are still stored in."""
    new, before = crd["spec"], old.get("spec") or {}
    found: list[FieldError] = []
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
            message = (
                f"missing from spec.versions; {stored} was previously a storage version, and must remain in "
                "spec.versions until a storage migration ensures no data remains persisted in "
                f"{stored} and removes {stored} from status.storedVersions"
            )
            found.append(invalid(at, stored, message))
    return found
