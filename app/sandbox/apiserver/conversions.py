"""Conversion webhooks: a custom resource's own service turns objects of one version into another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from app.sandbox.apiserver import status
from app.sandbox.apiserver.core import Core
from app.sandbox.apiserver.hookcalls import CallFailed, HookCaller
from app.sandbox.apiserver.hooks import client_config
from app.sandbox.apiserver.kinds import ResourceType

Json: TypeAlias = dict[str, Any]

#: How long a real server waits for a conversion.
SECONDS = 30
_IMMUTABLE = ("name", "namespace", "uid")


class ConversionWebhooks:
    """Asks the webhook that a CustomResourceDefinition names."""

    def __init__(self, core: Core, caller: HookCaller) -> None:
        self._core = core
        self._caller = caller

    async def convert(self, resource: ResourceType, objects: Sequence[Json], wanted: str) -> list[Json]:
        """The objects in the apiVersion that is wanted. Refuses (500) what the webhook does wrong."""
        if resource.custom is None or resource.custom.conversion is None:
            return [{**obj, "apiVersion": wanted} for obj in objects]
        given = objects[0].get("apiVersion", resource.api_version)
        url, ca_bundle, _ = client_config(resource.custom.conversion)
        versions = resource.custom.conversion.get("conversionReviewVersions") or ["v1"]
        version = next((one for one in versions if one in ("v1", "v1beta1")), "v1")
        uid = self._core.new_uid()
        review = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{version}",
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": list(objects)},
        }
        group, _, name = given.rpartition("/")
        prefix = f"conversion webhook for {group}/{name}, Kind={resource.kind} failed: "
        try:
            answer = await self._caller.call(url, ca_bundle, review, SECONDS)
        except CallFailed as error:
            text = str(error).removeprefix("failed to call webhook: ")
            raise status.plain_error(prefix + text) from None
        converted = _converted(answer, uid, len(objects), prefix)
        for before, after in zip(objects, converted, strict=True):
            _check(before, after, wanted, prefix)
        return converted


def _converted(answer: Mapping[str, Any], uid: str, count: int, prefix: str) -> list[Json]:
    response = answer.get("response")
    if not isinstance(response, dict):
        raise status.plain_error(f"{prefix}no response provided")
    if response.get("uid") != uid:
        raise status.plain_error(f'{prefix}expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    result = response.get("result") or {}
    if result.get("status") != "Success":
        raise status.plain_error(prefix + (result.get("message") or "no message"))
    found = response.get("convertedObjects") or []
    if len(found) != count:
        raise status.plain_error(f"{prefix}expected {count} converted objects, got {len(found)}")
    return list(found)


def _check(before: Json, after: Json, wanted: str, prefix: str) -> None:
    if after.get("apiVersion") != wanted:
        raise status.plain_error(
            f"{prefix}returned object has wrong apiVersion: expected {wanted}, got {after.get('apiVersion')}"
        )
    if after.get("kind") != before.get("kind"):
        raise status.plain_error(
            f"{prefix}returned object has wrong kind: expected {before.get('kind')}, got {after.get('kind')}"
        )
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    for name in _IMMUTABLE:
        if old.get(name) != new.get(name):
            raise status.plain_error(f"{prefix}must have the same {name}: {new.get(name)!r} != {old.get(name)!r}")
