"""Conversion webhooks: objects of a custom resource brought into another version by somebody else's program.

Source: Kubernetes 1.34, apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from app.sandbox.apiserver import golang, status
from app.sandbox.apiserver.hookcalls import CallFailed, HookCaller
from app.sandbox.apiserver.hooks import client_config
from app.sandbox.apiserver.kinds import ResourceType

Json: TypeAlias = dict[str, Any]

_SECONDS: Final = 30
_CONTEXT: Final = "failed to call webhook: "


class WebhookConverter:
    """Asks the webhook of a definition."""

    def __init__(self, caller: HookCaller, new_uid: Callable[[], str]) -> None:
        self._caller = caller
        self._new_uid = new_uid

    async def convert(self, resource: ResourceType, objects: Sequence[Json], wanted: str) -> list[Json]:
        """The objects in the version that is wanted; refused (500) where the webhook gives anything else."""
        if resource.custom is None or resource.custom.conversion is None:  # pragma: no cover  # only asked where one is
            return list(objects)
        what = f"conversion webhook for {objects[0]['apiVersion']}, Kind={resource.kind}"
        url, ca_bundle, _ = client_config(resource.custom.conversion)
        uid = self._new_uid()
        review = {
            "kind": "ConversionReview",
            "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": list(objects)},
        }
        try:
            answer = await self._caller.call(url, ca_bundle, review, _SECONDS)
        except CallFailed as error:
            raise status.plain_error(f"{what} failed: {str(error).removeprefix(_CONTEXT)}") from None
        response = answer.get("response") or {}
        _check(what, uid, response)
        converted = response.get("convertedObjects") or []
        if len(converted) != len(objects):
            raise status.plain_error(f"{what} returned {len(converted)} objects, expected {len(objects)}")
        for index, (before, after) in enumerate(zip(objects, converted, strict=True)):
            _check_object(what, index, before, after, wanted)
        return list(converted)


def _check(what: str, uid: str, response: Json) -> None:
    if response.get("uid") != uid:
        found = response.get("uid", "")
        raise status.plain_error(f'{what} failed: expected response.uid="{uid}", got "{found}"')
    result = response.get("result") or {}
    if result.get("status") != "Success":
        raise status.plain_error(f"{what} failed: {result.get('message') or result.get('reason') or 'unknown reason'}")


def _check_object(what: str, index: int, before: Json, after: Any, wanted: str) -> None:
    """A conversion may change neither what an object is nor which one it is."""
    at = f"{what} returned invalid object at index {index}"
    if not isinstance(after, dict):
        raise status.plain_error(f"{at}: {golang.json_type(after)}")
    if after.get("apiVersion") != wanted:
        found = after.get("apiVersion", "")
        raise status.plain_error(f"{at}: invalid groupVersion (expected {wanted}, received {found})")
    if after.get("kind") != before.get("kind"):
        raise status.plain_error(f"{at}: invalid kind (expected {before.get('kind')}, received {after.get('kind')})")
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    for field, word in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if old.get(field) != new.get(field):
            same = f"must have the same {word}: {old.get(field)} != {new.get(field)}"
            raise status.plain_error(f"{what} returned invalid object: {same}")
