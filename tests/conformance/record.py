"""Records what the sandbox's data say about built-in kinds, from the API server of a control plane of the tests.

    python -m tests.conformance.record            # writes app/sandbox/apiserver/data
    python -m tests.conformance.record --check    # fails when the server says something else

Four files: the schemas of all types, their descriptions (`kubectl explain` alone wants them), what is served, and the
columns it is printed in.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.controlplane import ControlPlane

DATA = Path(__file__).resolve().parents[2] / "app" / "sandbox" / "apiserver" / "data"

#: The group versions that the sandbox serves.
GROUP_VERSIONS = (
    "v1",
    "apps/v1",
    "batch/v1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "authorization.k8s.io/v1",
    "authentication.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "events.k8s.io/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "networking.k8s.io/v1",
    "node.k8s.io/v1",
)

#: Requests a path from a server with an Accept header.
Get = Callable[[str, str], Any]

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def recorded(get: Get) -> dict[str, Any]:
    """Return the content of every data file, by name."""
    schemas: dict[str, Any] = {}
    for group_version in GROUP_VERSIONS:
        path = f"apis/{group_version}" if "/" in group_version else f"api/{group_version}"
        document = get(f"/openapi/v3/{path}", "application/json")
        schemas.update(document["components"]["schemas"])
    bare, descriptions = {}, {}
    for name, schema in sorted(schemas.items()):
        bare[name] = _without_descriptions(schema)
        descriptions[name] = _descriptions(schema)
        if _with_descriptions(bare[name], descriptions[name]) != schema:
            raise ValueError(f"{name} has descriptions in places the data cannot hold")
    groups = [*get("/api", AGGREGATED)["items"], *get("/apis", AGGREGATED)["items"]]
    return {
        "schemas.json.gz": bare,
        "descriptions.json.gz": descriptions,
        "discovery.json.gz": (served := [found for group in groups if (found := _served(group)) is not None]),
        "columns.json.gz": _columns(get, served),
    }


def _columns(get: Get, served: Any) -> dict[str, Any]:
    """Return the columns of every listable resource, by apiVersion and plural."""
    found = {}
    for group in served:
        for version in group["versions"]:
            for resource in version["resources"]:
                if "list" in resource["verbs"]:
                    api_version = f"{group['group']}/{version['version']}".lstrip("/")
                    path = f"{'/apis' if group['group'] else '/api'}/{api_version}/{resource['resource']}"
                    table = get(path, TABLE)
                    found[f"{api_version}/{resource['resource']}"] = table["columnDefinitions"]
    return found


def _without_descriptions(schema: Any) -> Any:
    bare = {key: value for key, value in schema.items() if key != "description"}
    if "properties" in bare:
        bare["properties"] = {
            name: {key: value for key, value in field.items() if key != "description"}
            for name, field in bare["properties"].items()
        }
    return bare


def _descriptions(schema: Any) -> dict[str, str]:
    """Return the type's own description under "", and those of its fields by name."""
    own = {"": schema["description"]} if "description" in schema else {}
    properties = schema.get("properties", {})
    return own | {name: field["description"] for name, field in properties.items() if "description" in field}


def _with_descriptions(bare: Any, descriptions: dict[str, str]) -> Any:
    schema = dict(bare)
    if "" in descriptions:
        schema["description"] = descriptions[""]
    if "properties" in schema:
        schema["properties"] = {
            name: {**field, "description": descriptions[name]} if name in descriptions else field
            for name, field in schema["properties"].items()
        }
    return schema


def _served(group: Any) -> Any | None:
    """Return a group of an aggregated discovery document with the served versions; None without any."""
    name = group["metadata"].get("name", "")
    versions = [
        {"version": version["version"], "resources": [_resource(one) for one in version["resources"]]}
        for version in group["versions"]
        if (f"{name}/{version['version']}" if name else version["version"]) in GROUP_VERSIONS
    ]
    return {"group": name, "versions": versions} if versions else None


def _resource(resource: Any) -> Any:
    return {key: value for key, value in resource.items() if value not in ("", [], None)}


def encoded(content: Any) -> bytes:
    """Return the bytes of a data file: the same for the same content."""
    text = json.dumps(content, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def differences(files: dict[str, Any]) -> list[str]:
    """Return the names of the committed files that differ from the recorded content."""
    return [name for name, content in files.items() if _committed(name) != content]


def _committed(name: str) -> Any:
    path = DATA / name
    return json.loads(gzip.decompress(path.read_bytes())) if path.exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.record", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when something differs")
    options = parser.parse_args()
    with ControlPlane(controller_manager=False) as control_plane:
        files = recorded(lambda path, accept: control_plane.request("GET", path, accept=accept)[1])
    differing = differences(files)
    if options.check:
        print(f"different from the server: {', '.join(differing) or 'nothing'}")
        return bool(differing)
    for name in differing:
        (DATA / name).write_bytes(encoded(files[name]))
        print(f"wrote {DATA / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
