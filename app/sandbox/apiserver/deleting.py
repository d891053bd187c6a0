"""Deletes one or many objects: preconditions, grace periods and finalizers, including those for the garbage
collector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, TypeAlias

import orjson

from app.kube.clock import rfc3339
from app.kube.fielderrors import FieldError, invalid, not_supported
from app.sandbox.apiserver import golang, status
from app.sandbox.apiserver.bodies import no_such_kind, parse_body
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.protobuf import MEDIA_TYPE
from app.sandbox.apiserver.requests import Call, dry_run_errors
from app.sandbox.apiserver.schemas import kind_field
from app.sandbox.apiserver.steps import Admission, Attributes, Kinds
from app.sandbox.apiserver.storage import Core, Entry, Stale
from app.sandbox.apiserver.strategies import FOREGROUND, ORPHAN
from app.sandbox.apiserver.typecheck import Checker, WrongType

Json: TypeAlias = dict[str, Any]

_POLICIES: Final = ("Orphan", "Background", "Foreground")
#: Kinds whose dependents are orphaned by default.
_ORPHAN_BY_DEFAULT: Final = frozenset({"replicationcontrollers", "jobs.batch"})
_UNCOLLECTED: Final = frozenset({"events", "events.events.k8s.io"})
_ATTEMPTS: Final = 20
_NAMESPACE_BUSY: Final = (
    "The system is ensuring all content is removed from this namespace.  Upon completion, this namespace will "
    "automatically be purged by the system."
)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a deletion."""

    grace: int | None = None
    policy: str = ""
    orphan: bool | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    raw: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, call: Call, body: Json | None) -> DeleteOptions:
        """Read the options from the body or the query. Rejects invalid options."""
        body = body or {}
        _check_body(body)
        grace = body.get("gracePeriodSeconds")
        if grace is None:
            grace = call.number("gracePeriodSeconds")
        orphan = body.get("orphanDependents")
        if orphan is None and "orphanDependents" in call.query:
            orphan = call.flag("orphanDependents")
        policy = body.get("propagationPolicy") or call.query.get("propagationPolicy", "")
        dry_run = body.get("dryRun") or ([call.query["dryRun"]] if call.query.get("dryRun") else [])
        preconditions = body.get("preconditions") or {}
        errors: list[FieldError] = []
        if policy and policy not in _POLICIES:
            errors.append(not_supported("propagationPolicy", policy, ("Foreground", "Background", "Orphan", "nil")))
        if policy and orphan is not None:
            message = "orphanDependents and deletionPropagation cannot be both set"
            errors.append(invalid("propagationPolicy", policy, message))
        errors += dry_run_errors(dry_run)
        if errors:
            raise status.invalid_kind("meta.k8s.io", "DeleteOptions", "", errors)
        return cls(
            grace=grace,
            policy=policy,
            orphan=orphan,
            uid=preconditions.get("uid") or "",
            resource_version=preconditions.get("resourceVersion") or "",
            dry_run=bool(dry_run),
            raw=body,
        )

    def as_json(self) -> Json:
        """Return the options as sent to webhooks."""
        found: Json = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
        if self.grace is not None:
            found["gracePeriodSeconds"] = self.grace
        if self.uid or self.resource_version:
            pairs = (("uid", self.uid), ("resourceVersion", self.resource_version))
            found["preconditions"] = {key: value for key, value in pairs if value}
        if self.orphan is not None:
            found["orphanDependents"] = self.orphan
        if self.policy:
            found["propagationPolicy"] = self.policy
        if self.dry_run:
            found["dryRun"] = ["All"]
        return found


def check_preconditions(resource: ResourceType, name: str, metadata: Mapping[str, Any], options: DeleteOptions) -> None:
    """Reject a deletion whose preconditions do not match the object's UID or version."""
    kind = replace(resource, served=replace(resource.served, plural=resource.kind))
    uid, version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
    if options.uid and options.uid != uid:
        raise status.conflict(
            kind,
            name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated",
        )
    if options.resource_version and options.resource_version != version:
        raise status.conflict(
            kind,
            name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({version}). The object might have been modified",
        )


def finalizers_after(resource: ResourceType, metadata: Mapping[str, Any], options: DeleteOptions) -> list[str]:
    """Return the finalizers to set when a deletion starts: the object's own, plus one if its dependents must be
    handled first."""
    present = list(metadata.get("finalizers") or ())
    if resource.qualified in _UNCOLLECTED:
        return present
    found = [name for name in present if name not in (ORPHAN, FOREGROUND)]
    if options.orphan is not None:
        wanted = ORPHAN if options.orphan else ""
    elif options.policy:
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(options.policy, "")
    elif ORPHAN in present:
        wanted = ORPHAN
    elif FOREGROUND in present:
        wanted = FOREGROUND
    else:
        wanted = ORPHAN if resource.qualified in _ORPHAN_BY_DEFAULT else ""
    return [*found, wanted] if wanted else found


class Deleter:
    """Carries out deletions."""

    def __init__(self, core: Core, kinds: Kinds, admission: Admission) -> None:
        self._core = core
        self._kinds = kinds
        self._admission = admission

    async def delete(self, call: Call, options: DeleteOptions) -> tuple[Json | Entry, int]:
        """Delete the object of a call. Returns the response body and the HTTP status."""
        for _ in range(_ATTEMPTS):
            entry = self._core.entry(call)
            try:
                return await self._delete(call, entry, options)
            except Stale:
                continue
        raise status.conflict(call.resource, call.name)

    async def _delete(self, call: Call, entry: Entry, options: DeleteOptions) -> tuple[Json | Entry, int]:
        resource, old = call.resource, entry.obj
        metadata = old["metadata"]
        check_preconditions(resource, call.name, metadata, options)
        if resource.qualified == "namespaces" and (found := await self._delete_namespace(call, entry, options)):
            return found, 200
        period = self._grace(resource, old, options)
        if metadata.get("deletionTimestamp") and period is not None:
            return await self._shorten(call, entry, options)
        finalizers = finalizers_after(resource, metadata, options)
        waits = bool(finalizers) or bool(period)
        if period is not None or finalizers or finalizers != list(metadata.get("finalizers") or ()):
            await self._ask(call, entry, options)
            if period is not None or finalizers:
                entry = self._mark(call, entry, options, period, finalizers)
        if waits:
            cascading = options.orphan is False
            return entry, 202 if cascading else 200
        return await self._remove(call, entry, options), 200

    def _grace(self, resource: ResourceType, obj: Json, options: DeleteOptions) -> int | None:
        """Return the grace period in seconds, or None if the kind has no grace period."""
        rule = self._kinds.strategy(resource).grace
        if rule is None:
            return None
        asked = options.grace if options.grace is None or options.grace >= 0 else 1
        return rule(obj, asked)

    async def _shorten(self, call: Call, entry: Entry, options: DeleteOptions) -> tuple[Json | Entry, int]:
        """Handle a repeated deletion, which can only shorten the grace period."""
        metadata = entry.obj["metadata"]
        current = metadata.get("deletionGracePeriodSeconds") or 0
        if not current:
            if metadata.get("finalizers"):
                await self._ask(call, entry, options)
                return entry, 200
            return await self._remove(call, entry, options), 200
        if options.grace is None or options.grace >= current:
            return entry, 200
        await self._ask(call, entry, options)
        period = max(options.grace, 0)
        due = _parse(metadata["deletionTimestamp"]) + timedelta(seconds=period - current)
        now = self._core.clock.now()
        if due < now:
            due, period = now, 1 if period else 0
        changed = {**metadata, "deletionTimestamp": rfc3339(due), "deletionGracePeriodSeconds": period}
        entry = self._put(call, entry, {**entry.obj, "metadata": changed}, options)
        if period or metadata.get("finalizers"):
            return entry, 200
        return await self._remove(call, entry, options), 200

    def _mark(
        self, call: Call, entry: Entry, options: DeleteOptions, period: int | None, finalizers: list[str]
    ) -> Entry:
        """Mark the object as being deleted."""
        metadata = dict(entry.obj["metadata"])
        now = self._core.clock.now()
        if not metadata.get("deletionTimestamp"):
            if metadata.get("generation"):
                metadata["generation"] += 1
            metadata["deletionTimestamp"] = rfc3339(now + timedelta(seconds=period or 0))
        metadata["deletionGracePeriodSeconds"] = period or 0
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        return self._put(call, entry, {**entry.obj, "metadata": metadata}, options)

    def _put(self, call: Call, entry: Entry, obj: Json, options: DeleteOptions) -> Entry:
        if options.dry_run:
            return Entry(entry.key, obj, entry.revision, entry.managed)
        if obj == entry.obj:
            return entry
        return self._core.storage.update(self._core.collection(call.resource), entry, obj)

    async def _remove(self, call: Call, entry: Entry, options: DeleteOptions) -> Json | Entry:
        await self._ask(call, entry, options)
        if options.dry_run:
            last = entry
        else:
            last = self._core.storage.delete(self._core.collection(call.resource), entry)
        if call.resource.returns_deleted:
            return last
        return status.success(call.resource, call.name, entry.obj["metadata"].get("uid", ""))

    async def _delete_namespace(self, call: Call, entry: Entry, options: DeleteOptions) -> Entry | None:
        """Start deleting a namespace. It is removed once it is empty. Returns None if it has no finalizers left in its
        spec and can be deleted like other objects."""
        obj = entry.obj
        held = bool(obj.get("spec", {}).get("finalizers"))
        if obj["metadata"].get("deletionTimestamp"):
            if held:
                raise status.conflict(call.resource, call.name, _NAMESPACE_BUSY)
            return None
        if not held:
            return None
        await self._ask(call, entry, options)
        metadata = dict(obj["metadata"])
        metadata["deletionTimestamp"] = self._core.now()
        finalizers = finalizers_after(call.resource, metadata, options)
        if finalizers:
            metadata["finalizers"] = finalizers
        changed = {**obj, "metadata": metadata, "status": {**obj.get("status", {}), "phase": "Terminating"}}
        return self._put(call, entry, changed, options)

    async def _ask(self, call: Call, entry: Entry, options: DeleteOptions) -> None:
        """Run admission, which may reject the deletion."""
        attributes = Attributes(
            operation="DELETE",
            resource=call.resource,
            subresource="",
            namespace=call.namespace,
            name="" if call.of_many else call.name,
            obj=None,
            old=entry.obj,
            user=call.user,
            dry_run=options.dry_run,
            options=options.as_json(),
            warnings=call.warnings,
            old_managed=entry.managed,
        )
        await self._admission.mutate(attributes)
        await self._admission.validate(attributes)
        current = self._core.collection(call.resource).objects.get(entry.key)
        if current is not entry and not options.dry_run:
            raise Stale(entry.key)


def _parse(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def read_body(call: Call) -> Json | None:
    """Return the delete options in the body, if any."""
    body = call.body
    if not body.strip():
        return None
    if call.headers.get("content-type", "") == MEDIA_TYPE:
        found, _ = parse_body(call)
        return found if isinstance(found, dict) else None
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        why = golang.syntax_error(body)
        raise status.plain_error(f"couldn't get version/kind; json parse error: {why}") from None
    if not isinstance(found, dict):
        raise status.bad_request("DeleteOptions must be an object")
    return found


def _check_body(body: Json) -> None:
    """Reject options of another kind or with values of the wrong type."""
    kind = body.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        raise status.plain_error(no_such_kind(body.get("apiVersion") or "v1", kind))
    try:
        _options_checker().read(body)
    except WrongType as error:
        raise status.plain_error(str(error)) from None


@cache
def _options_checker() -> Checker:
    found = kind_field("v1", "DeleteOptions")
    if found is None:  # pragma: no cover  # all types are recorded
        raise LookupError("DeleteOptions")
    return Checker(found)
