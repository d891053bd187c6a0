"""Create and update. Every write goes through the same steps in the same order:

decode → default → mutating admission → prepare → validate → validating admission → commit. Other writes may commit
while a webhook is awaited; the steps then run again on the newest state, as on a real server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

import orjson

from app.kube.fielderrors import FieldError, GoLiteral, invalid
from app.sandbox.apiserver import status
from app.sandbox.apiserver import strategies as meta
from app.sandbox.apiserver.fieldsets import empty_object
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.managing import UPDATE, Managed, Manager, change_of, managers_of
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.scaling import paths_of, scale_managed, scale_of, scaled
from app.sandbox.apiserver.schemas import kind_field
from app.sandbox.apiserver.steps import (
    Admission,
    Attributes,
    Kinds,
    check_namespace,
    is_complete,
    keep_outside,
    key_of,
    metadata_of,
    ordered,
)
from app.sandbox.apiserver.storage import Core, Entry, Stale
from app.sandbox.apiserver.strategies import Strategy, changed_outside_metadata, new_errors, without_status
from app.sandbox.apiserver.versions import Versions

Json: TypeAlias = dict[str, Any]
#: Returns the desired object, given the current one. The caller may change the result.
Transform: TypeAlias = Callable[[Json | None], Json]

_NAME_ATTEMPTS: Final = 8
_UPDATE_ATTEMPTS: Final = 20


class Writer:
    """Carries out creates and updates."""

    def __init__(self, core: Core, kinds: Kinds, admission: Admission, versions: Versions) -> None:
        self._core = core
        self._kinds = kinds
        self._admission = admission
        self._versions = versions

    # ---- create

    async def create(self, call: Call, obj: Json) -> Entry:
        """Store a new object. Returns it as stored, or as it would be in a dry run."""
        resource = call.resource
        metadata = metadata_of(obj)
        meta.wipe(metadata)
        check_namespace(resource, metadata, call.namespace)
        strategy = self._kinds.strategy(resource)
        strategy.default(obj)
        call.warnings.extend(strategy.warnings(obj))
        if resource.custom is not None:
            call.warnings.extend(meta.finalizer_warnings(metadata))
        attributes = self._attributes(call, "CREATE", metadata.get("name") or "", obj, None)
        attributes.managed = self._created_by(call, obj)
        await self._admission.mutate(attributes)
        if attributes.obj is None:  # pragma: no cover  # webhooks cannot remove an object
            raise status.internal("admission left no object")
        return await self._create(call, attributes)

    async def _create(self, call: Call, attributes: Attributes) -> Entry:
        obj = attributes.obj or {}
        metadata = metadata_of(obj)
        generated = bool(metadata.get("generateName")) and not metadata.get("name")
        for attempt in range(_NAME_ATTEMPTS if generated else 1):
            if generated:
                metadata["name"] = self._core.generated_name(metadata["generateName"])
            name = metadata.get("name") or ""
            self._prepare_create(call.resource, obj)
            attributes.obj, attributes.name = obj, name
            await self._admission.validate(attributes)
            try:
                stored = await self._versions.stored(call.resource, obj)
                return self._commit_create(call, stored, attributes.managed)
            except Stale:
                if generated and attempt < _NAME_ATTEMPTS - 1:
                    continue
                break
        if generated:
            raise status.no_free_name(call.resource, metadata["name"])
        present = self._core.collection(call.resource).objects.get(key_of(metadata))
        deleting = present is not None and "deletionTimestamp" in present.obj["metadata"]
        raise status.already_exists(call.resource, metadata["name"], deleting=deleting)

    def _prepare_create(self, resource: ResourceType, obj: Json) -> None:
        strategy = self._kinds.strategy(resource)
        metadata = metadata_of(obj)
        metadata["uid"] = self._core.new_uid()
        metadata["creationTimestamp"] = self._core.now()
        if not strategy.keeps_status:
            without_status(resource, obj)
        if resource.generation:
            metadata["generation"] = 1
        strategy.prepare_create(obj)
        errors = strategy.create_errors(obj) + strategy.errors(obj)
        if not errors:
            errors = meta.metadata_errors(metadata, namespaced=resource.namespaced, rule=strategy.name_rule)
            if resource.qualifies_finalizers:
                errors += meta.finalizer_errors(metadata)
        if errors:
            raise status.invalid(resource, metadata.get("name") or "", errors)

    def _commit_create(self, call: Call, obj: Json, managed: Managed | None) -> Entry:
        metadata = obj["metadata"]
        if metadata.get("resourceVersion"):
            raise status.plain_error("resourceVersion should not be set on objects to be created")
        metadata.pop("resourceVersion", None)
        collection, key = self._core.collection(call.resource), key_of(metadata)
        if call.dry_run:
            if key in collection.objects:
                raise Stale(key)
            return Entry(key, ordered(call.resource, obj), self._core.storage.revision, managed)
        return self._core.storage.create(collection, key, ordered(call.resource, obj), managed)

    # ---- update

    async def update(
        self, call: Call, transform: Transform, *, allow_create: bool = False, uid: str = ""
    ) -> tuple[Entry, bool]:
        """Replace an object with the result of ``transform``. Returns the entry and whether it was created.

        ``uid``: if set, the object must have this UID.
        """
        resource = call.resource
        collection = self._core.collection(resource)
        for _ in range(_UPDATE_ATTEMPTS):
            entry = collection.objects.get(call.key)
            if entry is None:
                if not allow_create:
                    raise status.not_found(resource, call.name)
                obj = transform(None)
                return await self.create(call, obj), True
            shown = (await self._versions.shown(resource, [entry]))[0]
            old = shown.obj
            if uid and old["metadata"].get("uid") != uid:
                raise status.uid_conflict(resource, call.key, uid, old["metadata"].get("uid", ""))
            obj = transform(shown.full if _touches_managers(call) else old)
            try:
                return await self._update(call, entry, obj, old), False
            except Stale:
                continue
        raise status.conflict(resource, call.name)

    async def _update(self, call: Call, entry: Entry, obj: Json, old: Json) -> Entry:
        resource = call.resource
        strategy = self._kinds.strategy(resource)
        metadata = metadata_of(obj)
        check_namespace(resource, metadata, call.namespace)
        metadata.setdefault("name", call.name)
        version = str(metadata.get("resourceVersion") or "")
        if version and not version.isdigit():
            raise status.plain_error(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        given = metadata.pop("managedFields", None)
        of_status = strategy.default_status if call.subresource == "status" else None
        (of_status or strategy.default)(obj)
        keep_outside(call, obj, old)
        attributes = self._attributes(call, "UPDATE", call.name, obj, old)
        attributes.old_managed = entry.managed
        attributes.managed = self._updated_by(call, entry.managed, given, obj, old)
        managed = attributes.managed
        view = _scale_view if call.subresource == "scale" else None
        if view is not None:
            view(attributes)
        await self._admission.mutate(attributes)
        if view is not None:
            obj = scaled(obj, attributes.obj or {}, paths_of(resource))
        elif attributes.obj is not None:
            obj, managed = attributes.obj, attributes.managed
        metadata = metadata_of(obj)
        if not version:
            if not resource.unconditional_update:
                shown = GoLiteral("0x0" if resource.custom is None else "0")
                error = invalid("metadata.resourceVersion", shown, "must be specified for an update")
                raise status.invalid(resource, call.name, [error], kind=resource.plural)
        elif not version.isdigit():
            raise status.plain_error(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        elif version != old["metadata"]["resourceVersion"]:
            raise status.conflict(resource, call.name)
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        self._prepare_update(call, obj, old)
        attributes.obj, attributes.old = obj, old
        attributes.managed, attributes.old_managed = managed, entry.managed
        if view is not None:
            view(attributes)
        await self._admission.validate(attributes)
        return self._commit_update(call, entry, await self._versions.stored(resource, obj), managed)

    def _prepare_update(self, call: Call, obj: Json, old: Json) -> None:
        resource = call.resource
        strategy = self._kinds.strategy(resource)
        metadata = obj["metadata"]
        meta.keep_server_fields(metadata, old["metadata"])
        keep_outside(call, obj, old)
        errors: list[FieldError] = []
        if call.subresource == "status":
            strategy.prepare_status(obj, old)
        else:
            if call.subresource != "finalize":
                strategy.prepare_update(obj, old)
            if resource.generation and changed_outside_metadata(obj, old, status=not resource.has_status):
                metadata["generation"] = old["metadata"].get("generation", 0) + 1
        errors += meta.updated_metadata_errors(metadata, old["metadata"], namespaced=resource.namespaced)
        errors += meta.update_errors(metadata, old["metadata"])
        if resource.qualifies_finalizers:
            errors += meta.finalizer_errors(metadata)
        errors += self._spec_errors(call, strategy, obj, old)
        if errors:
            raise status.invalid(resource, call.name, errors)

    # ---- managed fields

    def _manager(self, call: Call) -> Manager:
        # Managers of the scale subresource have no timestamp.
        time = self._core.now() if call.subresource != "scale" else ""
        return Manager(call.field_manager, UPDATE, call.resource.api_version, call.subresource, time)

    def _created_by(self, call: Call, obj: Json) -> Managed | None:
        """Return the managers of a new object. Fields added by admission have no manager."""
        given = managers_of(obj["metadata"].pop("managedFields", None))
        if call.is_apply:
            return Managed(given)
        field, has_status = self._kinds.schema(call.resource), call.resource.has_status
        manager = self._manager(call)
        if not given:
            return Managed.created(manager, field, orjson.dumps(obj), has_status=has_status)
        change = change_of(empty_object(field), obj, field, manager, has_status=has_status)
        return Managed(given) if change is None else Managed(given).changed(change)

    def _updated_by(self, call: Call, current: Managed | None, given: Any, obj: Json, old: Json) -> Managed | None:
        """Return the managers of an updated object.

        ``given``: the managed fields in the request, which take precedence. A single empty entry resets them.
        """
        if call.is_apply:
            return Managed(managers_of(given))
        if given is not None and not call.subresource:
            if managers := managers_of(given):
                current = Managed(managers)
            elif given == [{}]:
                return None
        if current is None:
            return None
        field, has_status = self._kinds.schema(call.resource), call.resource.has_status
        change = change_of(old, obj, field, self._manager(call), has_status=has_status)
        return current if change is None else current.changed(change)

    def _spec_errors(self, call: Call, strategy: Strategy, obj: Json, old: Json) -> list[FieldError]:
        custom = call.resource.custom is not None
        if call.subresource == "status":
            return strategy.status_errors(obj, old)
        if call.subresource in strategy.part_errors:
            return strategy.part_errors[call.subresource](obj, old)
        errors = strategy.errors(obj)
        if custom and errors:
            errors = new_errors(errors, strategy.errors(old))
        return errors + strategy.update_errors(obj, old)

    def _commit_update(self, call: Call, entry: Entry, obj: Json, managed: Managed | None) -> Entry:
        collection = self._core.collection(call.resource)
        if collection.objects.get(entry.key) is not entry:
            raise Stale(entry.key)
        obj = ordered(call.resource, obj)
        old = entry.obj
        if call.dry_run:
            return Entry(entry.key, obj, entry.revision, managed)
        if is_complete(obj, old):
            # Watchers see the object as last stored, with its finalizers.
            self._core.storage.delete(collection, entry, old)
            return Entry(entry.key, obj, entry.revision, managed)
        if obj == old and (managed is entry.managed or (managed is not None and managed.same(entry.managed))):
            return entry  # unchanged: no new version, no event
        return self._core.storage.replace(collection, entry, obj, managed)

    # ---- admission

    async def admit(self, call: Call, name: str, obj: Json) -> None:
        """Run admission on a posted document that is not stored, such as an eviction or a binding."""
        attributes = self._attributes(call, "CREATE", name, obj, None)
        group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
        attributes.kind = {"group": group, "version": version, "kind": obj.get("kind", "")}
        manager = replace(self._manager(call), api_version=obj.get("apiVersion", ""))
        field = kind_field(manager.api_version, obj.get("kind", ""))
        attributes.managed = Managed.created(manager, field, orjson.dumps(obj), has_status=False)
        await self._admission.mutate(attributes)
        await self._admission.validate(attributes)

    def _attributes(self, call: Call, operation: str, name: str, obj: Json, old: Json | None) -> Attributes:
        kind = "CreateOptions" if operation == "CREATE" else "UpdateOptions"
        if call.method == "PATCH":
            kind = "UpdateOptions" if operation == "UPDATE" else "CreateOptions"
        options: Json = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if call.dry_run:
            options["dryRun"] = ["All"]
        for option in ("fieldManager", "fieldValidation"):
            if value := call.query.get(option):
                options[option] = value
        return Attributes(
            operation=operation,
            resource=call.resource,
            subresource=call.subresource,
            namespace=call.namespace,
            name=name,
            obj=obj,
            old=old,
            user=call.user,
            dry_run=call.dry_run,
            options=options,
            warnings=call.warnings,
        )


def _scale_view(attributes: Attributes) -> None:
    """Replace the objects in ``attributes`` with their Scales, since admission sees the object that was written."""
    paths = paths_of(attributes.resource)
    attributes.obj = scale_of(attributes.obj or {}, paths)
    attributes.old = scale_of(attributes.old or {}, paths)
    attributes.managed = scale_managed(attributes.managed, paths)
    attributes.old_managed = scale_managed(attributes.old_managed, paths)
    attributes.kind = {"group": "autoscaling", "version": "v1", "kind": "Scale"}


def _touches_managers(call: Call) -> bool:
    """Return whether a patch touches managed fields."""
    return call.method == "PATCH" and (call.is_apply or b"managedFields" in call.body)
