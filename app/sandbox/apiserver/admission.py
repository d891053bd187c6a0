"""Admission: the server's own plugins, then the registered webhooks.

Mutating webhooks are called one by one. Those with reinvocationPolicy IfNeeded are called again if a later one changes
the object. Validating webhooks are called concurrently.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import orjson

from app.sandbox.apiserver import golang, patching, status
from app.sandbox.apiserver.catalog import Catalog
from app.sandbox.apiserver.cel import CelError
from app.sandbox.apiserver.hooks import (
    MUTATING,
    VALIDATING,
    CallFailed,
    Hook,
    HookCaller,
    Hooks,
    Invocation,
    client_config,
    conditions_hold,
    hooks_of,
    matching,
    variables_of,
)
from app.sandbox.apiserver.managing import Managed, managers_of, with_creator, with_managed
from app.sandbox.apiserver.plugins import BINDINGS, POLICIES, BoundPolicy, Plugins, bound_policies, concerned, judge
from app.sandbox.apiserver.status import Refusal
from app.sandbox.apiserver.steps import Attributes, fresh
from app.sandbox.apiserver.storage import Core, Entry
from app.sandbox.apiserver.typecheck import WrongType
from app.sandbox.apiserver.versions import Versions

Json: TypeAlias = dict[str, Any]

_REVIEWS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
_QUIET: Final = frozenset({"None", "NoneOnDryRun"})


class AdmissionChain:
    """The admission chain for every write: first mutation, then validation."""

    def __init__(self, core: Core, catalog: Catalog, versions: Versions, caller: HookCaller) -> None:
        self._core = core
        self._catalog = catalog
        self._versions = versions
        self._caller = caller
        self._plugins = Plugins(core)
        self._hooks: dict[str, Hooks] = {MUTATING: Hooks(), VALIDATING: Hooks()}
        self._policies: tuple[BoundPolicy, ...] = ()
        core.storage.listeners.append(self._committed)

    def _committed(self, _verb: str, collection: Any, _before: Entry | None, _after: Entry | None) -> None:
        if collection.name in (POLICIES, BINDINGS):
            self._policies = bound_policies(self._core)
        if collection.name in self._hooks:
            self._hooks[collection.name] = hooks_of(self._core, collection.name)

    async def mutate(self, attributes: Attributes) -> None:
        """Let plugins and mutating webhooks change the object."""
        self._plugins.mutate(attributes)
        hooks = self._hooks[MUTATING].for_write(self._core, attributes)
        if not hooks:
            return
        again, changed = await self._round(hooks, attributes)
        if changed:
            # Plugins also apply to what webhooks add (a new container gets the service account token).
            before = fresh(attributes.obj)
            self._plugins.mutate(attributes)
            if attributes.obj != before:
                again = [hook for hook in hooks if hook.reinvocable]
        if again:
            await self._round([hook for hook in hooks if hook in again], attributes)

    async def _round(self, hooks: Sequence[Hook], attributes: Attributes) -> tuple[list[Hook], bool]:
        """Call the hooks one by one. Returns the hooks to call again because a later one changed the object."""
        called: list[Hook] = []
        again: list[Hook] = []
        changed = False
        for hook in hooks:
            invocation = await self._concerned(hook, attributes)
            if invocation is None:
                continue
            try:
                touched = await self._mutated(invocation, attributes)
            except CallFailed as error:
                if hook.ignores_failure:
                    continue
                raise status.internal(f'failed calling webhook "{hook.name}": {error}') from None
            if touched:
                changed = True
                again += [one for one in called if one not in again]
            if hook.reinvocable:
                called.append(hook)
        return again, changed

    async def validate(self, attributes: Attributes) -> None:
        """Run policies and validating webhooks, which may reject the write."""
        for bound in self._policies:
            if concerned(self._core, bound, attributes):
                own = Invocation(bound.wanted, attributes.resource)
                judge(self._core, bound, attributes, self._request(own, attributes, ""))
        invocations = []
        for hook in self._hooks[VALIDATING].for_write(self._core, attributes):
            if (invocation := await self._concerned(hook, attributes)) is not None:
                invocations.append(invocation)
        if not invocations:
            return
        if len(invocations) == 1:
            await self._judge(invocations[0], attributes)
            return
        results = await asyncio.gather(
            *(self._judge(invocation, attributes) for invocation in invocations), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _judge(self, invocation: Invocation, attributes: Attributes) -> None:
        hook = invocation.hook
        try:
            await self._ask(invocation, attributes, mutating=False)
        except CallFailed as error:
            if not hook.ignores_failure:
                raise status.internal(f'failed calling webhook "{hook.name}": {error}') from None

    # ---- calling a hook

    async def _concerned(self, hook: Hook, attributes: Attributes) -> Invocation | None:
        invocation = matching(self._core, hook, attributes)
        if invocation is None or not hook.raw.get("matchConditions"):
            return invocation
        shown = await self._shown(invocation, attributes)
        request = self._request(invocation, shown, "")
        try:
            holds = conditions_hold(hook, variables_of(shown, request))
        except CelError as error:
            raise status.forbidden(attributes.resource, attributes.name, str(error)) from None
        return invocation if holds else None

    async def _shown(self, invocation: Invocation, attributes: Attributes) -> Attributes:
        """Return the write with its objects converted to the version in the hook's rule."""
        resource = invocation.resource
        if resource.api_version == attributes.resource.api_version:
            return attributes
        objects = [obj for obj in (attributes.obj, attributes.old) if obj is not None]
        converted = await self._versions.convert(attributes.resource, objects, resource.api_version)
        found = iter(converted)
        obj = next(found) if attributes.obj is not None else None
        old = next(found) if attributes.old is not None else None
        return replace(attributes, obj=obj, old=old)

    async def _mutated(self, invocation: Invocation, attributes: Attributes) -> bool:
        """Call a mutating hook and apply its patch. Returns whether the object changed."""
        shown = await self._shown(invocation, attributes)
        response = await self._ask(invocation, shown, mutating=True)
        encoded = response.get("patch")
        if not encoded:
            return False
        try:
            operations = orjson.loads(base64.b64decode(encoded, validate=True))
        except orjson.JSONDecodeError:
            why = golang.syntax_error(base64.b64decode(encoded))
            raise CallFailed(f"received undecodable patch in webhook response: {why}") from None
        except (binascii.Error, ValueError):
            raise CallFailed("failed to call webhook: illegal base64 data at input byte 0") from None
        if not operations:
            return False
        if shown.obj is None:
            raise status.internal(
                f'admission webhook "{invocation.hook.name}" attempted to modify the object, which is not supported '
                "for this operation"
            )
        if response.get("patchType") != "JSONPatch":
            raise CallFailed(f'unsupported patch type "{response.get("patchType")}"')
        seen, _ = self._seen(invocation.hook, shown)
        try:
            patched = patching.apply(operations, seen or {})
        except (patching.JsonPatchError, KeyError, TypeError, AttributeError) as error:
            raise status.internal(str(error)) from None
        if invocation.resource.api_version != attributes.resource.api_version:
            [patched] = await self._versions.convert(invocation.resource, [patched], attributes.resource.api_version)
        before = attributes.obj
        attributes.obj = self._read(attributes, patched)
        given = attributes.obj["metadata"].pop("managedFields", None)
        if given != (seen or {})["metadata"].get("managedFields"):
            # An empty list removes the field.
            attributes.managed = Managed(left) if (left := managers_of(given)) else None
        return attributes.obj != before

    def _seen(self, hook: Hook, attributes: Attributes) -> tuple[Json | None, Json | None]:
        """Return the object and the old object as a hook sees them. To save time, the managed fields for hooks in this
        process contain only the creator's name."""
        obj, old = attributes.obj, attributes.old
        if self._caller.is_local(client_config(hook.raw)[0]):
            return with_creator(obj, attributes.managed) if obj is not None and old is None else obj, old
        return (
            with_managed(obj, attributes.managed) if obj is not None else None,
            with_managed(old, attributes.old_managed) if old is not None else None,
        )

    def _read(self, attributes: Attributes, patched: Json) -> Json:
        """Decode a webhook's result, check its types and set defaults."""
        found: Json = fresh(patched)
        if attributes.subresource and attributes.subresource not in ("status", "resize", "ephemeralcontainers"):
            return found
        reader = self._catalog.checker(attributes.resource)
        if reader is not None:
            try:
                found = dict(reader.read(found)[0])
            except WrongType as error:
                raise status.internal(str(error)) from None
        self._catalog.strategy(attributes.resource).default(found)
        return found

    async def _ask(self, invocation: Invocation, attributes: Attributes, *, mutating: bool) -> Json:
        """Return the hook's response if it allows the write. Raises the denial, or CallFailed."""
        hook = invocation.hook
        if attributes.dry_run and hook.raw.get("sideEffects") not in _QUIET:
            raise status.bad_request(f'admission webhook "{hook.name}" does not support dry run')
        shown = attributes if mutating else await self._shown(invocation, attributes)
        uid = self._core.new_uid()
        url, ca_bundle, versions = client_config(hook.raw)
        version = next((one for one in versions if one in ("v1", "v1beta1")), "v1")
        obj, old = self._seen(hook, shown)
        review = {
            "kind": "AdmissionReview",
            "apiVersion": f"admission.k8s.io/{version}",
            "request": self._request(invocation, shown, uid) | {"object": obj, "oldObject": old},
        }
        answer = await self._caller.call(url, ca_bundle, review, hook.seconds)
        response = _verified(answer, uid, version, mutating=mutating)
        attributes.warnings.extend(response.get("warnings") or ())
        if not response.get("allowed"):
            raise denied(hook.name, response.get("status"))
        return response

    def _request(self, invocation: Invocation, attributes: Attributes, uid: str) -> Json:
        """Return the ``request`` of a review, without the objects."""
        actual, named = attributes.resource, invocation.resource
        kind = attributes.kind or {"group": named.group, "version": named.version, "kind": named.kind}
        request_kind = attributes.kind or {"group": actual.group, "version": actual.version, "kind": actual.kind}
        found: Json = {
            "uid": uid,
            "kind": kind,
            "resource": {"group": named.group, "version": named.version, "resource": named.plural},
            "requestKind": request_kind,
            "requestResource": {"group": actual.group, "version": actual.version, "resource": actual.plural},
            "operation": attributes.operation,
            "userInfo": attributes.user.as_json(),
            "dryRun": attributes.dry_run,
            "options": attributes.options,
        }
        if attributes.subresource:
            found["subResource"] = found["requestSubResource"] = attributes.subresource
        if attributes.name:
            found["name"] = attributes.name
        namespace = attributes.namespace
        if actual.qualified == "namespaces":
            namespace = attributes.name
        if namespace:
            found["namespace"] = namespace
        return found


def _verified(answer: Json, uid: str, version: str, *, mutating: bool) -> Json:
    """Return the ``response`` of the review that a hook returned. Raises CallFailed if the review is invalid."""
    kind, api_version = answer.get("kind") or "", answer.get("apiVersion") or ""
    if kind and (kind != "AdmissionReview" or api_version not in _REVIEWS):
        raise CallFailed(
            f'failed to call webhook: no kind "{kind}" is registered for version "{api_version}" in scheme '
            '"pkg/runtime/scheme.go:110"'
        )
    if kind and api_version != f"admission.k8s.io/{version}":
        given = api_version.rpartition("/")[2]
        raise CallFailed(
            f"failed to call webhook: converting ({given}.AdmissionReview) to ({version}.AdmissionReview): unknown "
            "conversion"
        )
    response = answer.get("response")
    prefix = "received invalid webhook response: "
    if not isinstance(response, dict):
        raise CallFailed(f"{prefix}webhook response was absent")
    if version != "v1":
        if response.get("patch"):
            response.setdefault("patchType", "JSONPatch")
        return response
    if response.get("uid") != uid:
        raise CallFailed(f'{prefix}expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    patch, patch_type = response.get("patch"), response.get("patchType")
    if mutating:
        if patch and patch_type is None:
            raise CallFailed(f"{prefix}webhook returned response.patch but not response.patchType")
        if not patch and patch_type is not None:
            raise CallFailed(f"{prefix}webhook returned response.patchType but not response.patch")
    elif patch:
        raise CallFailed(f"{prefix}validating webhook may not return response.patch")
    elif patch_type is not None:
        raise CallFailed(f"{prefix}validating webhook may not return response.patchType")
    return response


def denied(name: str, result: Json | None) -> Refusal:
    """Return the error for a denial with this status from the webhook."""
    result = result or {}
    said = f'admission webhook "{name}" denied the request'
    if message := result.get("message"):
        said = f"{said}: {message}"
    elif reason := result.get("reason"):
        said = f"{said}: {reason}"
    else:
        said = f"{said} without explanation"
    code = int(result.get("code") or 0)
    return Refusal(max(code, 400), str(result.get("reason") or ""), said, result.get("details"))
