"""Discovery: groups, versions and resources, in both forms; health; the part of OpenAPI that kubectl reads."""

from tests.conformance.record import AGGREGATED, GROUP_VERSIONS
from tests.conformance.steps import Case, get, is_served

_PATHS = [f"/apis/{one}" if "/" in one else f"/api/{one}" for one in GROUP_VERSIONS]
_GROUPS = sorted({one.split("/")[0] for one in GROUP_VERSIONS if "/" in one})
_GROUP = "conformance.example.com"


def _schema(kind: str, *fields: str) -> tuple[str, ...]:
    return tuple(f"components.schemas.{kind}.{field}" for field in fields)


CASES = [
    *(Case(f"resources-of{path.replace('/', '-')}", get(path)) for path in _PATHS),
    *(
        Case(f"group-{group}", get(f"/apis/{group}", keep=["kind", "apiVersion", "name", "preferredVersion"]))
        for group in _GROUPS
    ),
    Case("core-versions", get("/api", drop=["serverAddressByClientCIDRs.0.serverAddress"])),
    Case("groups", get("/apis", keep=["kind", "apiVersion"])),
    Case("core-in-one", get("/api", accept=AGGREGATED)),
    Case("groups-in-one", get("/apis", accept=AGGREGATED, keep=["kind", "apiVersion", "metadata"])),
    Case("groups-in-one-or-json", get("/apis", accept=f"{AGGREGATED},application/json", keep=["kind", "apiVersion"])),
    Case(
        "groups-in-another-form",
        get(
            "/apis",
            accept="application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
            keep=["kind"],
        ),
    ),
    Case("version", get("/version", keep=["major", "minor"])),
    Case("alive", get("/livez"), get("/healthz"), get("/readyz")),
    Case(
        "trailing-slash",
        get("/api/v1/", keep=["kind", "groupVersion"]),
        get("/apis/apps/v1/", keep=["kind", "groupVersion"]),
    ),
    Case(
        "custom-resources",
        get(f"/apis/{_GROUP}", until=is_served),
        get(
            f"/apis/{_GROUP}/v1",
            until=lambda status, body: status == 200 and len(body["resources"]) >= 3,
            keep=["kind", "groupVersion", "resources.0.name", "resources.0.verbs"],
        ),
        needs=["widgets", "gadgets", "gizmos"],
    ),
    Case(
        "openapi",
        get("/openapi/v3", keep=["kind"]),
        get("/openapi/v3/apis/apps/v1", keep=["openapi", *_schema("io", "k8s")]),
    ),
    Case("openapi-nowhere", get("/openapi/v3/apis/no.such.group/v1")),
]
