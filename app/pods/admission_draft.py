"""The Pod under admission. Steps read it like a Pod and change it through JSON Patch operations, each with its rule.

A draft is a copy-on-write view of the raw JSON object of one review. Steps change the draft, never the object, so
fields newer than our models survive [PW-30], and no comparison of two documents is needed to compute the patch.
Operations apply in the order in which they were recorded; a change without effect records no operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import orjson

from app.kube.admission import Allowed, Patched, PatchOperation
from app.kube.fielderrors import shortened, too_long
from app.kube.patches import diff, escape, same
from app.kube.validation import TOTAL_ANNOTATION_SIZE_LIMIT

Container: TypeAlias = Mapping[str, Any]
ContainerList: TypeAlias = Literal["containers", "initContainers"]

_NOTHING: Mapping[str, Any] = {}


class PodRefusedError(Exception):
    """The Pod must not be created. The message is shown to the user: it names the object, the field and the remedy."""

    def __init__(self, message: str, code: int = 422) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class PodDraft:
    """A Pod with the changes recorded so far. ``namespace`` is the request's, used if the Pod has none. [PW-6]"""

    __slots__ = ("_operations", "_owned", "metadata", "namespace", "original", "spec")

    def __init__(self, pod: Mapping[str, Any], namespace: str = "") -> None:
        self.original = pod
        self.metadata: Mapping[str, Any] = pod.get("metadata") or _NOTHING
        self.spec: Mapping[str, Any] = pod.get("spec") or _NOTHING
        self.namespace: str = self.metadata.get("namespace") or namespace or "default"
        self._operations: list[PatchOperation] = []
        #: Parts already copied: "metadata", "spec", "annotations" and names of lists in the spec.
        self._owned: set[str] = set()

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """``metadata.name``; empty until the API server generates it."""
        return self.metadata.get("name") or ""

    @property
    def generate_name(self) -> str:
        return self.metadata.get("generateName") or ""

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.get("labels") or _NOTHING

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.get("annotations") or _NOTHING

    @property
    def owner_references(self) -> Sequence[Mapping[str, Any]]:
        return self.metadata.get("ownerReferences") or ()

    @property
    def managed_fields(self) -> Sequence[Mapping[str, Any]]:
        return self.metadata.get("managedFields") or ()

    @property
    def containers(self) -> Sequence[Container]:
        return self.spec.get("containers") or ()

    @property
    def init_containers(self) -> Sequence[Container]:
        return self.spec.get("initContainers") or ()

    @property
    def volumes(self) -> Sequence[Mapping[str, Any]]:
        return self.spec.get("volumes") or ()

    @property
    def image_pull_secrets(self) -> Sequence[Mapping[str, Any]]:
        return self.spec.get("imagePullSecrets") or ()

    @property
    def readiness_gates(self) -> Sequence[Mapping[str, Any]]:
        return self.spec.get("readinessGates") or ()

    @property
    def display(self) -> str:
        """The Pod's name for messages; the API server completes a generated name only after admission."""
        return f"Pod {shortened(self.namespace)}/{shortened(self.name or self.generate_name + '*')}"

    def refuse_oversized_annotations(self) -> None:
        """Raise PodRefusedError for annotations larger than the API server allows.

        The API server checks the size only after admission; this check avoids processing megabytes of text.
        """
        annotations = self.annotations
        if annotations and sum(map(len, annotations.values())) > TOTAL_ANNOTATION_SIZE_LIMIT:
            raise PodRefusedError(f"{self.display}: {too_long('metadata.annotations', TOTAL_ANNOTATION_SIZE_LIMIT)}")

    # --- changing -----------------------------------------------------------------------------------------------------

    def set_name(self, name: str, rule: str) -> None:
        """Set ``metadata.name`` of a Pod that has only ``generateName``."""
        metadata = self._own_metadata()
        self._record("replace" if "name" in metadata else "add", "/metadata/name", name, rule)
        metadata["name"] = name

    def set_annotations(self, annotations: Mapping[str, str], rule: str) -> None:
        """Set these annotations and keep the others. Records one operation if the Pod has no annotations yet."""
        current = self.annotations
        changed = {key: value for key, value in annotations.items() if current.get(key) != value}
        if not changed:
            return
        metadata = self._own_metadata()
        if not current:
            metadata["annotations"] = changed
            self._owned.add("annotations")
            self._record("add", "/metadata/annotations", dict(changed), rule)
            return
        if "annotations" not in self._owned:
            self._owned.add("annotations")
            metadata["annotations"] = dict(current)
        held = metadata["annotations"]
        for key, value in changed.items():
            self._record("replace" if key in held else "add", f"/metadata/annotations/{escape(key)}", value, rule)
            held[key] = value

    def remove_managed_fields(self, rule: str) -> None:
        if "managedFields" in self.metadata:
            self._record("remove", "/metadata/managedFields", None, rule)
            del self._own_metadata()["managedFields"]

    def insert_container(
        self,
        index: int,
        container: Container,
        rule: str,
        *,
        into: ContainerList = "containers",
        rendered: orjson.Fragment | None = None,
    ) -> None:
        """Insert a container before position ``index``; an index past the end appends.

        ``rendered`` is the same container, already serialized; it goes into the patch unchanged. The container is
        shared, not copied: it must never be modified.
        """
        self._insert(into, index, container, rule, rendered)

    def replace_container(
        self,
        index: int,
        container: Container,
        rule: str,
        *,
        into: ContainerList = "containers",
        rendered: orjson.Fragment | None = None,
    ) -> None:
        items = self._own_list(into)
        if items[index] != container:
            items[index] = container
            self._record("replace", f"/spec/{into}/{index}", container if rendered is None else rendered, rule)

    def remove_container_field(self, index: int, field: str, rule: str) -> None:
        items = self._own_list("containers")
        items[index] = {name: value for name, value in items[index].items() if name != field}
        self._record("remove", f"/spec/containers/{index}/{escape(field)}", None, rule)

    def append_env(
        self, index: int, entry: Mapping[str, Any], rule: str, *, into: ContainerList = "containers"
    ) -> None:
        items = self._own_list(into)
        container = items[index]
        env = container.get("env") or ()
        path = f"/spec/{into}/{index}/env"
        self._record("add", f"{path}/-" if env else path, entry if env else [entry], rule)
        items[index] = {**container, "env": [*env, entry]}

    def add_volume(self, volume: Mapping[str, Any], rule: str, *, rendered: orjson.Fragment | None = None) -> None:
        self._insert("volumes", len(self.volumes), volume, rule, rendered)

    def set_image_pull_secrets(self, secrets: Sequence[Mapping[str, Any]], rule: str) -> None:
        """Set the Pod's imagePullSecrets to ``secrets``; if they start with the current ones, only the rest is
        appended."""
        present = self.image_pull_secrets
        if list(secrets[: len(present)]) == list(present):
            for secret in secrets[len(present) :]:
                self._insert("imagePullSecrets", len(self.image_pull_secrets), secret, rule)
            return
        self._own_spec()["imagePullSecrets"] = list(secrets)
        self._owned.add("imagePullSecrets")
        self._record("replace", "/spec/imagePullSecrets", list(secrets), rule)

    def add_readiness_gate(self, condition_type: str, rule: str) -> None:
        """Append a readiness gate if the Pod lacks it."""
        gates = self.readiness_gates
        if all(gate.get("conditionType") != condition_type for gate in gates):
            self._insert("readinessGates", len(gates), {"conditionType": condition_type}, rule)

    def change_field(self, part: Literal["metadata", "spec"], field: str, value: Any, rule: str) -> None:
        """Set a field of the metadata or the spec to ``value`` with the fewest operations; None removes it.

        The value is shared, not copied.
        """
        former = getattr(self, part).get(field)
        if same(former, value):
            return
        own = self._own_metadata() if part == "metadata" else self._own_spec()
        path = f"/{part}/{escape(field)}"
        if value is None:
            del own[field]
            self._record("remove", path, None, rule)
        else:
            own[field] = value
            if former is None:
                self._record("add", path, value, rule)
            else:
                self._operations.extend(diff(former, value, path=path, rule=rule))
        self._owned.discard(field)

    # --- the outcome --------------------------------------------------------------------------------------------------

    @property
    def operations(self) -> tuple[PatchOperation, ...]:
        """The recorded changes, in the order in which they apply."""
        return tuple(self._operations)

    def decision(self) -> Allowed | Patched:
        """Return Allowed if nothing changed, else the patch. [PW-6]"""
        return Patched(tuple(self._operations)) if self._operations else Allowed()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _record(self, op: Literal["add", "replace", "remove"], path: str, value: Any, rule: str) -> None:
        self._operations.append(PatchOperation(op, path, value, rule))

    def _own_metadata(self) -> dict[str, Any]:
        if "metadata" not in self._owned:
            self._owned.add("metadata")
            if self.original.get("metadata") is None:
                self._record("add", "/metadata", {}, "")
            self.metadata = dict(self.metadata)
        return self.metadata  # type: ignore[return-value]  # a dict from here on

    def _own_spec(self) -> dict[str, Any]:
        if "spec" not in self._owned:
            self._owned.add("spec")
            if self.original.get("spec") is None:
                self._record("add", "/spec", {}, "")
            self.spec = dict(self.spec)
        return self.spec  # type: ignore[return-value]  # a dict from here on

    def _own_list(self, field: str) -> list[Any]:
        if field not in self._owned:
            spec = self._own_spec()
            self._owned.add(field)
            spec[field] = list(spec.get(field) or ())
        items: list[Any] = self.spec[field]
        return items

    def _insert(
        self, field: str, index: int, value: Mapping[str, Any], rule: str, rendered: orjson.Fragment | None = None
    ) -> None:
        shown = value if rendered is None else rendered
        absent = self.spec.get(field) is None
        items = self._own_list(field)
        if absent:
            # "add" replaces a null member and creates a missing one.
            self._record("add", f"/spec/{field}", [shown], rule)
            items.append(value)
        elif index >= len(items):
            self._record("add", f"/spec/{field}/-", shown, rule)
            items.append(value)
        else:
            self._record("add", f"/spec/{field}/{index}", shown, rule)
            items.insert(index, value)


def is_controlled_by_group(owner_references: Iterable[Mapping[str, Any]], group: str) -> bool:
    """Return whether the controller among these owner references is of API group ``group``, in any version. [PM-115]"""
    return any(
        reference.get("controller") and str(reference.get("apiVersion")).startswith(f"{group}/")
        for reference in owner_references
    )
