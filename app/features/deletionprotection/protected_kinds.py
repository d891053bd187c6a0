"""Table of protected kinds in ``policies/protected-kinds.yaml``, which the operator may edit.

Everything else about a kind is derived from its row: webhook, permissions, metrics, commands, admission policies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, Field

from app.framework.policies import POLICY, PolicyError, parse_policy, read_policy
from app.kube.resources import Resource

FILE_NAME: Final = "protected-kinds.yaml"
#: The ``policies`` folder is next to ``app`` in a clone and in an installation.
SHIPPED: Final = Path(__file__).resolve().parent.parent.parent.parent / "policies" / FILE_NAME


def is_ours(group: str) -> bool:
    """Return whether the API group belongs to OpenKruise."""
    return group.endswith(".kruise.io")


class Cascading(StrEnum):
    """The check that the value ``Cascading`` requires before an object of a kind may be deleted."""

    REPLICAS = "replicas"
    NAMESPACE = "namespace"
    CUSTOM_RESOURCES = "customResources"
    NOTHING = ""


_ONLY: Final = {
    Cascading.NAMESPACE: ("", "namespaces"),
    Cascading.CUSTOM_RESOURCES: ("apiextensions.k8s.io", "customresourcedefinitions"),
}


@dataclass(frozen=True, slots=True)
class ProtectedKind:
    """One row: a kind, the meaning of ``Cascading`` for it, and the names of its webhook."""

    kind: str
    group: str
    resource: str
    versions: tuple[str, ...]
    namespaced: bool
    short_names: tuple[str, ...]
    cascading: Cascading
    webhook: str
    path: str

    @property
    def full_name(self) -> str:
        """Return the resource name as kubectl writes it: ``deployments.apps``, ``namespaces``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def endpoint(self) -> Resource:
        """Return the resource for API requests."""
        return Resource(self.group, self.versions[0], self.resource, self.kind, self.namespaced)


class _Row(BaseModel):
    model_config = POLICY

    kind: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]*$")]
    group: Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")]
    resource: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*$")]
    versions: Annotated[list[Annotated[str, Field(pattern=r"^v[0-9a-z]+$")]], Field(min_length=1)]
    namespaced: bool = True
    short_names: list[str] = []
    cascading: Annotated[Cascading, Field(strict=False)] = Cascading.NOTHING
    webhook: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?){2,}$")] = ""
    path: Annotated[str, Field(pattern=r"^/[-a-z0-9/]+$")] = ""

    def protected_kind(self) -> ProtectedKind:
        """Return the row with missing names defaulted."""
        kind = self.kind.lower()
        group = f"{self.group.replace('.', '-')}-" if self.group else ""
        return ProtectedKind(
            kind=self.kind,
            group=self.group,
            resource=self.resource,
            versions=tuple(self.versions),
            namespaced=self.namespaced,
            short_names=tuple(self.short_names),
            cascading=self.cascading,
            # Each of our kinds has one webhook for both writes and deletions. [CS-173]
            webhook=self.webhook or (f"v{kind}.kb.io" if is_ours(self.group) else f"v{kind}deletion.kb.io"),
            path=self.path or f"/validate-{group}{kind}",
        )


class _Table(BaseModel):
    model_config = POLICY

    kinds: list[_Row]


def load_table(folder: Path | None = None) -> tuple[ProtectedKind, ...]:
    """Load the table from the operator's folder, or the built-in one. Raises PolicyError."""
    own = folder / FILE_NAME if folder is not None and folder.is_dir() else None
    path = own if own is not None and own.exists() else SHIPPED
    return parse_table(read_policy(path), str(path))


@lru_cache(maxsize=4)
def parse_table(text: str, source: str) -> tuple[ProtectedKind, ...]:
    """Parse the rows of a YAML document. ``source`` is its name in messages. Raises PolicyError."""
    kinds = tuple(row.protected_kind() for row in parse_policy(text, source, _Table).kinds)
    _check_unique(source, "group and resource", (f"{kind.group}/{kind.resource}" for kind in kinds))
    _check_unique(source, "webhook", (kind.webhook for kind in kinds))
    for index, kind in enumerate(kinds):
        only = _ONLY.get(kind.cascading)
        if only is not None and (kind.group, kind.resource) != only:
            raise PolicyError(f"{source}: kinds.{index}.cascading: {kind.cascading} is only valid for {only[1]}")
    return kinds


def find_kind(table: Iterable[ProtectedKind], name: str) -> ProtectedKind | None:
    """Find a kind by kind name, resource name or short name, optionally followed by a dot and its group.

    If several kinds share a name, the first row wins, because kubectl prefers the built-in kind.
    """
    wanted = name.lower()
    for kind in table:
        for known in (kind.kind.lower(), kind.resource, *kind.short_names):
            if wanted == known or (kind.group and wanted == f"{known}.{kind.group}"):
                return kind
    return None


def _check_unique(source: str, what: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            raise PolicyError(f"{source}: kinds.{index}: another row has the same {what} {value!r}")
        seen.add(value)
