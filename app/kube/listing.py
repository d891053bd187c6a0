"""Lists as an API server sends them: one message, whose items are read one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

import msgspec
from typing_extensions import TypeVar

from app.kube import depth

T = TypeVar("T", default=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """Objects of a list, or of one page of it while ``continue_token`` is not empty."""

    items: list[T]
    resource_version: str
    continue_token: str = ""


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a list."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class RawList(msgspec.Struct, frozen=True):
    """A list whose items are left as bytes."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_decode_list = msgspec.json.Decoder(RawList).decode


def read_list(body: bytes) -> RawList:
    """A list, also where one of its items is nested deeper than a decoder goes."""
    try:
        return _decode_list(body)
    except RecursionError:
        envelope, items = depth.split_list(body)
        return RawList(_decode_list(envelope).metadata, [msgspec.Raw(item) for item in items])
