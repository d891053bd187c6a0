"""Custom resources: CRDs and their validation, schemas, pruning, defaults, columns, versions, conversion."""

from collections.abc import Callable
from typing import Any

from tests.conformance.definitions import FREE, GROUP, NUMBER, TEXT, definition, fields
from tests.conformance.steps import TABLE, Call, Case, Step, delete, get, is_gone, is_served, merge, post, put, quiet
from tests.kit.objects import version

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WIDGETS = f"/apis/{GROUP}/v1/namespaces/{{ns}}/widgets"
_WIDGET = f"{_WIDGETS}/a"
_ERROR = ("code", "reason", "message", "details", "metadata.name")
#: A group for each case.
_OWN = "{ns}.example.com"


def _widget(spec: Any, **more: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec, **more}


def _own(*versions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return definition("things", "Thing", *versions, group=_OWN, **spec)


def _thing(name: str = "a", in_version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": f"{_OWN}/{in_version}", "kind": "Thing", "metadata": {"name": name}, **more}


def _things(in_version: str = "v1") -> str:
    return f"/apis/{_OWN}/{in_version}/namespaces/{{ns}}/things"


def _about_widget(id: str, *steps: Step) -> Case:
    return Case(id, *steps, needs=["widgets"])


def _changing_widget(id: str, *steps: Step) -> Case:
    return _about_widget(id, quiet(post(_WIDGETS, _widget({"size": 1}))), *steps)


def _validated(id: str, how: str, spec: Any, *keep: str) -> Case:
    return _about_widget(id, post(_WIDGETS, _widget(spec), query={"fieldValidation": how}, keep=keep))


def _served(in_version: str = "v1") -> Call:
    return get(_things(in_version), until=is_served, keep=("kind",), quiet=True)


def _defined(*versions: dict[str, Any], **spec: Any) -> list[Call]:
    declared = versions or (version(),)
    return [quiet(post(_CRDS, _own(*declared, **spec))), *(_served(one["name"]) for one in declared if one["served"])]


def _redefined(*keep: str, quiet: bool = False, **spec: Any) -> Call:
    return merge(f"{_CRDS}/things.{_OWN}", {"spec": spec}, keep=keep, quiet=quiet)


def _answers(*specs: Any) -> list[Call]:
    """Create an object with each spec."""
    return [post(_things(), _thing(name, spec=spec), keep=_ERROR) for name, spec in zip("abcde", specs, strict=False)]


def _has(condition: str, *status: str) -> Callable[[int, Any], bool]:
    """Whether a CRD has a condition, with one of these statuses if given."""
    return lambda _, body: any(
        one["type"] == condition and (not status or one["status"] in status)
        for one in (body.get("status", {}).get("conditions") or ())
    )


def _refused(id: str, crd: dict[str, Any]) -> Case:
    return Case(f"definition-{id}", post(_CRDS, crd, keep=_ERROR))


_SPECS: dict[str, Any] = {
    "right": {"size": 1},
    "missing": {},
    "null": {"size": None},
    "text": {"size": "big"},
    "float": {"size": 1.5},
    "float-that-is-whole": {"size": 2.0},
    "small": {"size": 0},
    "large": {"size": 11},
    "enum": {"size": 1, "colour": "blue"},
    "enum-type": {"size": 1, "colour": 7},
    "short": {"size": 1, "name": "a"},
    "long": {"size": 1, "name": "abcdef"},
    "pattern": {"size": 1, "name": "AB"},
    "multiple": {"size": 1, "ratio": 0.3},
    "multiple-right": {"size": 1, "ratio": 1.5},
    "port-number": {"size": 1, "port": 80},
    "port-text": {"size": 1, "port": "http"},
    "port-bool": {"size": 1, "port": True},
    "port-float": {"size": 1, "port": 1.5},
    "items-many": {"size": 1, "tags": ["a", "b", "c", "d"]},
    "items-type": {"size": 1, "tags": ["a", 1]},
    "items-null": {"size": 1, "tags": ["a", None]},
    "set-duplicate": {"size": 1, "tags": ["a", "a"]},
    "map-duplicate": {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]},
    "map-no-key": {"size": 1, "parts": [{"count": 1}]},
    "map-default": {"size": 1, "parts": [{"name": "a"}]},
    "properties-many": {"size": 1, "labels": {"a": "1", "b": "2", "c": "3"}},
    "property-type": {"size": 1, "labels": {"a": 1}},
    "date": {"size": 1, "when": "2026-01-02T03:04:05Z"},
    "date-nonsense": {"size": 1, "when": "yesterday"},
    "bool-text": {"size": 1, "on": "yes"},
    "nullable": {"size": 1, "maybe": None},
    "null-where-forbidden": {"size": 1, "name": None},
    "null-with-default": {"size": 1, "colour": None},
    "unknown": {"size": 1, "shape": "round"},
    "unknown-nested": {"size": 1, "nested": {"deep": {"value": 1, "x": 2}, "y": 3}},
    "free": {"size": 1, "free": {"anything": [1, {"goes": True}]}},
    "object-for-array": {"size": 1, "tags": {"a": "b"}},
    "array-for-object": {"size": 1, "labels": ["a"]},
    "text-for-spec": "x",
    "list-for-spec": [],
    "null-for-spec": None,
    "big-number": {"size": 1, "replicas": 12345678901234567890},
    "exponent": {"size": 1, "ratio": 1e2},
}
_GADGET = {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": "a"}}
_MANY_ERRORS = {"size": 99, "colour": "blue", "tags": [1], "nested": "x"}
_OBJECTS: dict[str, dict[str, Any]] = {
    "wrong-kind": _GADGET,
    "wrong-version": {"apiVersion": f"{GROUP}/v2", "kind": "Widget", "metadata": {"name": "a"}},
    "wrong-group": {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}},
    "no-kind": {"apiVersion": f"{GROUP}/v1", "metadata": {"name": "a"}, "spec": {"size": 1}},
    "no-version": {"kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1}},
    "no-name": _widget({"size": 1}, metadata={}),
    "upper-name": _widget({"size": 1}, metadata={"name": "A"}),
    "label-number": _widget({"size": 1}, metadata={"name": "a", "labels": {"a": 1}}),
    "label-bad": _widget({"size": 1}, metadata={"name": "a", "labels": {"a": "-"}}),
    "metadata-unknown": _widget({"size": 1}, metadata={"name": "a", "shape": "x"}),
    "metadata-text": _widget({"size": 1}, metadata="a"),
    "name-number": _widget({"size": 1}, metadata={"name": 1}),
    "root-unknown": _widget({"size": 1}, extra=1),
    "generated": _widget({"size": 1}, metadata={"generateName": "gen-"}),
    "finalizer-bad": _widget({"size": 1}, metadata={"name": "a", "finalizers": ["hold"]}),
}
_NAMED = {"type": "array", "items": fields(name=TEXT)}
_BAD_SCHEMAS: dict[str, Any] = {
    "no-type": {"properties": {"spec": FREE}},
    "root-type": {"type": "string"},
    "odd-type": fields(spec={"type": "text"}),
    "field-without-type": fields(spec={}),
    "array-without-items": fields(spec={"type": "array"}),
    "items-list": fields(spec={"type": "array", "items": [TEXT]}),
    "properties-and-additional": fields(
        spec={"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT}
    ),
    "ref": fields(spec={"$ref": "#/definitions/x"}),
    "unique-items": fields(spec={"type": "array", "items": TEXT, "uniqueItems": True}),
    "metadata-schema": fields(metadata=fields(labels=FREE)),
    "metadata-name": fields(metadata=fields(name={"type": "string", "maxLength": 3})),
    "default-invalid": fields(spec={"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
    "default-pruned": fields(spec={"type": "object", "default": {"b": 1}, "properties": {"a": TEXT}}),
    "list-type-odd": fields(spec={"type": "array", "items": TEXT, "x-kubernetes-list-type": "bag"}),
    "map-without-keys": fields(spec=_NAMED | {"x-kubernetes-list-type": "map"}),
    "map-key-optional": fields(spec=_NAMED | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
    "set-of-objects": fields(spec=_NAMED | {"x-kubernetes-list-type": "set"}),
    "pattern-bad": fields(spec={"type": "string", "pattern": "("}),
    "type-in-any-of": fields(spec={"type": "object", "anyOf": [{"type": "object"}]}),
    "any-of-more": fields(
        spec={"type": "object", "properties": {"a": TEXT}, "anyOf": [{"properties": {"b": {"minLength": 1}}}]}
    ),
    "int-or-string-type": fields(spec={"type": "string", "x-kubernetes-int-or-string": True}),
    "validation-rule": fields(spec={"type": "object", "x-kubernetes-validations": [{"rule": "self.nope > 1"}]}),
    "nullable-default": fields(spec={"type": "object", "properties": {"a": {"type": "string", "default": None}}}),
    "unknown-keyword": fields(spec={"type": "string", "readOnly": True}),
}


def _column(**column: Any) -> dict[str, Any]:
    return _own(version(additionalPrinterColumns=[{"name": "A", "type": "string", **column}]))


def _changed(**changes: Any) -> dict[str, Any]:
    crd = _own(version())
    return {**crd, "spec": {**crd["spec"], **changes}}


_BAD_DEFINITIONS: dict[str, dict[str, Any]] = {
    "wrong-name": {**_own(version()), "metadata": {"name": "things"}},
    "no-spec": {key: value for key, value in _own(version()).items() if key != "spec"},
    "no-group": _changed(group=""),
    "bad-group": _changed(group="Example_com"),
    "no-versions": _changed(versions=[]),
    "bad-version": _own(version("V_1")),
    "two-equal-versions": _own(version(), version(storage=False)),
    "no-storage": _own(version(storage=False)),
    "two-storages": _own(version(), version("v2")),
    "no-schema": _own(version(schema=None) | {"schema": None}),
    "none-served": _own(version(served=False)),
    "no-scope": _changed(scope=None),
    "bad-scope": _changed(scope="Universal"),
    "no-plural": _changed(names={"kind": "Thing"}),
    "upper-plural": _changed(names={"plural": "Things", "kind": "Thing"}),
    "no-kind": _changed(names={"plural": "things"}),
    "bad-kind": _changed(names={"plural": "things", "kind": "no_thing"}),
    "list-kind-same": _changed(names={"plural": "things", "kind": "Thing", "listKind": "Thing"}),
    "bad-short-name": _changed(names={"plural": "things", "kind": "Thing", "shortNames": ["T T"]}),
    "preserve-unknown": _changed(preserveUnknownFields=True),
    "conversion-odd": _changed(conversion={"strategy": "Magic"}),
    "conversion-webhook-without-config": _changed(conversion={"strategy": "Webhook"}),
    "conversion-none-with-config": _changed(
        conversion={"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}
    ),
    "conversion-no-versions": _changed(
        conversion={"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://127.0.0.1/x"}}}
    ),
    "conversion-plain-http": _changed(
        conversion={
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"url": "http://127.0.0.1/x"}, "conversionReviewVersions": ["v1"]},
        }
    ),
    "column-without-path": _column(),
    "column-path": _column(jsonPath="spec.a"),
    "column-type": _column(type="text", jsonPath=".spec.a"),
    "column-format": _column(format="odd", jsonPath=".spec.a"),
    "scale-without-path": _own(version(subresources={"scale": {}})),
    "scale-path": _own(
        version(subresources={"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ".spec.y"}})
    ),
    "protected-group": definition("things", "Thing", version(), group="things.k8s.io"),
    "selectable-field": _own(version(selectableFields=[{"jsonPath": ".spec.nope"}])),
}
_NAMES_TAKEN = definition(
    "things", "Widget", version(), names={"plural": "things", "kind": "Widget", "shortNames": ["wd"]}
)

_DEFAULTED = version(
    schema=fields(
        spec={
            "type": "object",
            "default": {},
            "properties": {
                "text": {"type": "string", "default": "hello"},
                "number": {"type": "integer", "default": 3},
                "list": {"type": "array", "default": ["a"], "items": TEXT},
                "nested": fields(inner={"type": "string", "default": "in"}),
                "map": {"type": "object", "additionalProperties": fields(x={"type": "integer", "default": 1})},
                "nothing": {"type": "string", "nullable": True, "default": None},
                "maybe": {"type": "string", "nullable": True, "default": "set"},
            },
        },
        status=fields(phase={"type": "string", "default": "New"}),
    ),
    subresources={"status": {}},
)
_PRESERVING = version(
    schema={
        "type": "object",
        "properties": {
            "spec": FREE | {"properties": {"known": fields(a=NUMBER)}},
            "pod": FREE | {"x-kubernetes-embedded-resource": True},
            "strict": fields(spec=fields(a=NUMBER)) | {"x-kubernetes-embedded-resource": True},
        },
    }
)
_COMBINED = version(
    schema=fields(
        spec={
            "type": "object",
            "properties": {"a": NUMBER, "b": NUMBER, "c": {"type": "integer", "exclusiveMinimum": True, "minimum": 1}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "not": {"required": ["c", "a"]},
            "minProperties": 1,
        }
    )
)
_TWO = (version("v1", FREE), version("v2", FREE, storage=False))
_RULES = version(
    schema=fields(
        spec={
            "type": "object",
            "properties": {
                "low": NUMBER,
                "high": NUMBER,
                "fixed": {
                    "type": "string",
                    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}],
                },
            },
            "x-kubernetes-validations": [
                {"rule": "!has(self.low) || !has(self.high) || self.low <= self.high", "message": "low is above high"},
                {"rule": "!has(self.low) || self.low > 0", "reason": "FieldValueForbidden", "fieldPath": ".low"},
            ],
        }
    )
)


def _conversion(url: str = "${hooks}/convert") -> dict[str, Any]:
    return {
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"url": url, "caBundle": "${ca}"}, "conversionReviewVersions": ["v1"]},
    }


def _converted(wrong: str) -> Case:
    """A CRD whose webhook has one error; the object is written in the stored version."""
    return Case(
        f"conversion-{wrong}",
        *_defined(*_TWO, conversion=_conversion(f"${{hooks}}/convert/{wrong}")),
        quiet(post(_things(), _thing(spec={"a": 1}))),
        get(f"{_things('v2')}/a"),
        get(_things("v2"), drop=["metadata.resourceVersion"]),
    )


_ALL_COLUMNS = {
    "size": 3,
    "on": True,
    "ratio": 0.5,
    "when": "2020-01-02T03:04:05Z",
    "parts": [{"name": "x"}],
    "tags": ["first"],
}

CASES = [
    *(_about_widget(f"spec-{id}", post(_WIDGETS, _widget(spec), drop=["metadata.uid"])) for id, spec in _SPECS.items()),
    # A real server checks the fields of an object in any order.
    _about_widget("spec-many-errors", post(_WIDGETS, _widget(_MANY_ERRORS), keep=["code", "reason"])),
    *(_about_widget(f"object-{id}", post(_WIDGETS, body)) for id, body in _OBJECTS.items()),
    _validated("strict", "Strict", {"size": 1, "shape": "round", "nested": {"y": 1}}),
    _validated("warn", "Warn", {"size": 1, "shape": "round"}, "spec"),
    _validated("ignore", "Ignore", {"size": 1, "shape": "round"}, "spec"),
    _about_widget(
        "strict-duplicate",
        Call(
            "POST",
            _WIDGETS,
            f'{{"apiVersion":"{GROUP}/v1","kind":"Widget","metadata":{{"name":"a"}},"spec":{{"size":1,"size":2}}}}',
            query={"fieldValidation": "Strict"},
            headers={"Content-Type": "application/json"},
        ),
    ),
    _about_widget("not-json", Call("POST", _WIDGETS, "{", headers={"Content-Type": "application/json"})),
    _changing_widget(
        "update-invalid",
        put(_WIDGET, _widget({"size": 0}, metadata={"name": "a", "resourceVersion": "${0.metadata.resourceVersion}"})),
    ),
    _changing_widget("update-without-version", put(_WIDGET, _widget({"size": 2}))),
    _changing_widget(
        "update-generation",
        put(
            _WIDGET,
            _widget({"size": 2}, metadata={"name": "a", "resourceVersion": "${0.metadata.resourceVersion}"}),
            keep=["metadata.generation", "spec"],
        ),
        merge(_WIDGET, {"metadata": {"labels": {"a": "b"}}}, keep=["metadata.generation"]),
    ),
    *(
        _changing_widget(
            f"status-of-another-{precondition}",
            merge(f"{_WIDGET}/status", {"metadata": {precondition: "7"}, "status": {"phase": "Mine"}}),
        )
        for precondition in ("uid", "resourceVersion")
    ),
    _about_widget(
        "table",
        quiet(post(_WIDGETS, _widget(_ALL_COLUMNS))),
        quiet(merge(f"{_WIDGET}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})),
        get(_WIDGETS, accept=TABLE),
    ),
    _changing_widget("table-of-little", get(_WIDGET, accept=TABLE, keep=["rows.*.cells"])),
    Case(
        "table-default-columns",
        quiet(post(f"/apis/{GROUP}/v1/namespaces/{{ns}}/gadgets", _GADGET)),
        get(f"/apis/{GROUP}/v1/namespaces/{{ns}}/gadgets", accept=TABLE),
        needs=["gadgets"],
    ),
    Case(
        "deprecated-version",
        get(f"/apis/{GROUP}/v1beta1/gizmos", keep=["kind", "apiVersion"]),
        get(f"/apis/{GROUP}/v1/gizmos", keep=["kind", "apiVersion"]),
        needs=["gizmos"],
    ),
    Case(
        "cluster-scoped-in-a-namespace",
        get(f"/apis/{GROUP}/v1/namespaces/{{ns}}/gizmos"),
        get(f"/apis/{GROUP}/v1/widgets/a"),
        needs=["gizmos", "widgets"],
    ),
    _validated("strict-unknown-nested", "Strict", {"size": 1, "parts": [{"name": "a", "x": 1}]}),
    # Definitions.
    Case(
        "definition",
        post(_CRDS, _own(version()), drop=["status.conditions"]),
        get(
            f"{_CRDS}/things.{_OWN}",
            until=_has("Established", "True"),
            keep=["status", "metadata.generation", "spec.names"],
        ),
        get(f"/apis/{_OWN}/v1", until=is_served, drop=["resources.*.storageVersionHash"]),
        get(f"/apis/{_OWN}", until=is_served),
    ),
    *(_refused(id, crd) for id, crd in _BAD_DEFINITIONS.items()),
    *(_refused(f"schema-{id}", _own(version(schema=schema))) for id, schema in _BAD_SCHEMAS.items()),
    Case(
        "definition-group-is-immutable",
        quiet(post(_CRDS, _own(version()))),
        _redefined("code", "reason", "details.causes.*.field", group="other.example.com"),
    ),
    Case("definition-scope-is-immutable", *_defined(), _redefined(*_ERROR, scope="Cluster")),
    Case(
        "definition-removes-its-objects",
        *_defined(),
        quiet(post(_things(), _thing())),
        delete(f"{_CRDS}/things.{_OWN}", keep=["status.acceptedNames", "kind", "metadata.finalizers"]),
        get(f"{_CRDS}/things.{_OWN}", until=is_gone, keep=["code"]),
        get(f"{_things()}/a", until=is_gone, keep=["code"]),
    ),
    Case(
        "definition-served-again",
        *_defined(),
        _redefined(quiet=True, versions=list(_TWO)),
        get(_things("v2"), until=is_served, keep=["kind", "apiVersion"]),
        get(f"{_CRDS}/things.{_OWN}", keep=["status.storedVersions"]),
    ),
    Case(
        "definition-names-taken",
        quiet(post(_CRDS, _NAMES_TAKEN)),
        get(
            f"{_CRDS}/things.{GROUP}",
            until=_has("NamesAccepted"),
            keep=[
                *(f"status.conditions.*.{field}" for field in ("type", "status", "reason", "message")),
                "status.acceptedNames",
            ],
        ),
        needs=["widgets"],
    ),
    # Defaults and pruning.
    Case(
        "defaults",
        *_defined(_DEFAULTED),
        post(_things(), _thing(), keep=["spec", "status"]),
        post(_things(), _thing("b", spec={"nested": {}, "map": {"k": {}}, "text": "mine"}), keep=["spec"]),
        post(_things(), _thing("c", spec={"text": None, "maybe": None, "number": None}), keep=["spec"]),
    ),
    Case(
        "defaults-on-reading",
        *_defined(version(schema=fields(spec=FREE))),
        quiet(post(_things(), _thing(spec={"old": 1}))),
        _redefined(
            quiet=True,
            versions=[
                version(schema=fields(spec={**FREE, "properties": {"new": {"type": "string", "default": "yes"}}}))
            ],
        ),
        get(f"{_things()}/a", until=lambda _, body: "new" in body["spec"], keep=["spec"]),
    ),
    Case(
        "pruning",
        *_defined(_PRESERVING),
        post(
            _things(),
            _thing(
                spec={"x": {"y": 1}, "known": {"a": 1, "b": 2}},
                pod={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "shape": "x"}, "extra": 1},
                strict={
                    "apiVersion": "v1",
                    "kind": "X",
                    "metadata": {"name": "s"},
                    "spec": {"a": 1, "b": 2},
                    "more": 1,
                },
                gone=1,
            ),
            drop=["metadata"],
        ),
    ),
    Case("embedded-needs-a-kind", *_defined(_PRESERVING), post(_things(), _thing(pod={"metadata": {"name": "p"}}))),
    Case(
        "combined-one-of",
        *_defined(_COMBINED),
        *_answers({"a": 1}, {"a": 1, "b": 1}, {}, {"b": 1, "c": 1}, {"a": 1, "c": 2}),
    ),
    Case(
        "rules",
        *_defined(_RULES),
        post(_things(), _thing(spec={"low": 2, "high": 1}), keep=_ERROR),
        post(_things(), _thing(spec={"low": 0}), keep=_ERROR),
        post(_things(), _thing(spec={"low": 1, "high": 2, "fixed": "x"}), keep=_ERROR),
        merge(f"{_things()}/a", {"spec": {"fixed": "y"}}, keep=_ERROR),
    ),
    # Versions.
    Case(
        "versions-without-conversion",
        *_defined(*_TWO),
        post(_things("v2"), _thing(in_version="v2", spec={"a": 1}), keep=["apiVersion", "spec"]),
        get(f"{_things('v1')}/a", keep=["apiVersion", "spec", "metadata.generation"]),
        get(_things("v2"), keep=["apiVersion", "items.*.apiVersion"]),
        merge(f"{_things('v2')}/a", {"spec": {"b": 2}}, keep=["apiVersion", "spec"]),
        post(_things("v1"), _thing("b", in_version="v2")),
    ),
    Case(
        "version-not-served",
        *_defined(version("v1", FREE), version("v2", FREE, storage=False, served=False)),
        get(_things("v2")),
    ),
    Case(
        "conversion",
        *_defined(*_TWO, conversion=_conversion()),
        post(_things("v1"), _thing(spec={"a": 1}), keep=["apiVersion", "spec"]),
        get(f"{_things('v2')}/a", keep=["apiVersion", "spec", "metadata.name"]),
        post(_things("v2"), _thing("b", in_version="v2", spec={"b": 1}), keep=["apiVersion", "spec"]),
        get(_things("v2"), keep=["apiVersion", "items.*.apiVersion", "items.*.spec"]),
        merge(f"{_things('v2')}/a", {"spec": {"c": 2}}, keep=["apiVersion", "spec"]),
    ),
    *map(_converted, ("failure", "uid", "count", "version", "name", "labels", "text")),
    Case(
        "conversion-down",
        *_defined(*_TWO, conversion=_conversion("https://127.0.0.1:1/convert")),
        quiet(post(_things(), _thing(spec={"a": 1}))),
        get(f"{_things('v2')}/a"),
    ),
]
