"""Apply requests: what the body and query of one must be, and the transform that comes of it."""

from __future__ import annotations

from typing import Any, TypeAlias

from app.kube.fielderrors import required
from app.sandbox.apiserver import applying, status
from app.sandbox.apiserver.bodies import parse_yaml
from app.sandbox.apiserver.core import Core
from app.sandbox.apiserver.lastapplied import KUBECTL, keep_last_applied, last_applied_fields
from app.sandbox.apiserver.managing import APPLY, Manager, read_managers
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.schemas import Field
from app.sandbox.apiserver.typecheck import Reader, WrongType
from app.sandbox.apiserver.writesteps import fresh
from app.sandbox.apiserver.writing import Transform

Json: TypeAlias = dict[str, Any]


def apply_transform(core: Core, call: Call, field: Field | None, reader: Reader | None) -> Transform:
    """What an apply makes of an object (or of none). Refuses a request that is none."""
    if not call.query.get("fieldManager"):
        error = required("fieldManager", "is required for apply patch")
        raise status.invalid_kind("meta.k8s.io", "PatchOptions", "", [error])
    applied = _configuration(call)
    shown = _shown(call, applied)
    force = call.query.get("force", "").lower() in ("1", "t", "true")
    manager = Manager(call.query["fieldManager"], APPLY, call.resource.api_version, call.subresource, core.now())

    def change(old: Json | None) -> Json:
        live: Json = fresh(old) if old is not None else {}
        live.setdefault("metadata", {})
        if old is None:
            if uid := applied["metadata"].get("uid"):
                why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise status.conflict(call.resource, call.name, why)
            applied["metadata"].pop("resourceVersion", None)
            managers: list[Manager] = []
        elif "managedFields" in live["metadata"]:
            managers = read_managers(live)
        else:
            managers = applying.first_managers(live, call.resource.api_version, field, core.now())
        by_kubectl = manager.name == KUBECTL and not manager.subresource
        handed_over = last_applied_fields(live, field) if by_kubectl else frozenset()
        found = applying.apply(live, applied, field, managers, manager, force=force, handed_over=handed_over)
        if by_kubectl:
            keep_last_applied(found, applied)
        found["kind"], found["apiVersion"] = call.resource.kind, call.resource.api_version
        if reader is None:
            return found
        try:
            checked, _ = reader.read(fresh(found))
        except WrongType as error:
            raise status.plain_error(f"failed to create typed patch object ({shown}): {error}") from None
        return dict(checked)

    applying.check_applied(applied, field, shown)
    return change


def _configuration(call: Call) -> Json:
    applied, repeated = parse_yaml(call.body)
    if repeated and call.field_validation == "Strict":
        lines = "".join(f"\n  {line}" for line in repeated)
        why = f"error converting YAML to JSON: yaml: unmarshal errors:{lines}"
        raise status.bad_request(f"error strict decoding YAML: {why}")
    if call.field_validation == "Warn":
        call.warnings.extend(repeated)
    if not isinstance(applied, dict):
        raise status.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{'array' if isinstance(applied, list) else 'string'} into Go value of type map[string]interface {{}}"
        )
    resource = call.resource
    kind, api_version = applied.get("kind") or "", applied.get("apiVersion") or ""
    if kind != resource.kind or not api_version or api_version.rpartition("/")[0] != resource.group:
        named = api_version if "/" in api_version else f"/{api_version}"
        raise status.bad_request(f"invalid object type: {named}, Kind={kind}")
    if api_version != resource.api_version:
        if resource.custom is None:
            named = api_version if "/" in api_version else f"/{api_version}"
            raise status.bad_request(f"invalid object type: {named}, Kind={kind}")
        raise status.bad_request(
            f"Incorrect version specified in apply patch. Specified patch version: {api_version}, expected: "
            f"{resource.api_version}"
        )
    metadata = applied.get("metadata")
    if metadata is None:
        metadata = applied["metadata"] = {}
    if not isinstance(metadata, dict):
        raise status.bad_request("metadata must be an object")
    if metadata.get("managedFields") is not None:
        raise status.bad_request("metadata.managedFields must be nil")
    name = metadata.get("name") or ""
    if not name:
        raise status.bad_request(
            f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
        )
    if name != call.name:
        raise status.bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")
    namespace = metadata.get("namespace")
    if namespace and namespace != call.namespace:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise status.bad_request(message)
    metadata.pop("creationTimestamp", None)
    return applied


def _shown(call: Call, applied: Json) -> str:
    """The configuration as messages name it, by what it says itself."""
    place = f"{applied['metadata'].get('namespace') or ''}/{call.name}"
    resource = call.resource
    group_version = resource.api_version if resource.group else f"/{resource.version}"
    return f"{place}; {group_version}, Kind={resource.kind}"
