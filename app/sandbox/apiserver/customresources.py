"""Custom resources: what a CustomResourceDefinition says of one version."""

from __future__ import annotations

from dataclasses import dataclass

from app.sandbox.apiserver.scaling import ScalePaths
from app.sandbox.apiserver.schemas import Field
from app.sandbox.apiserver.strategies import Strategy
from app.sandbox.apiserver.tableview import TableView


@dataclass(frozen=True)
class CustomVersion:
    """One served version of a custom resource."""

    stored_api_version: str
    list_kind: str
    strategy: Strategy
    field: Field
    table: TableView
    scale: ScalePaths | None
    selectable_fields: tuple[str, ...]
