"""Reviews of our own kinds, as their handlers may rely on them.

An API server vouches for the types of a new object's fields, and for nothing in one that was stored before our
definitions were there. What it drops, nulls, may come from others who reach the port.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson
from pydantic import ValidationError

from app.api.jsonvalue import cut, nested_deeper
from app.api.model import ObjectMeta
from app.api.registry import find_kind
from app.api.requested import unreadable
from app.api.structural import readable
from app.kube.admission import Denied, Operation, Review

#: What etcd takes in one request where nobody says otherwise: a larger object can never be stored.
MAX_STORED_BYTES: Final = 1_572_864


def prepared(review: Review, body_bytes: int) -> Review | Denied:
    """The review with its stored object readable; a refusal of a new object that is larger than what can be stored.

    The time that judging takes grows with the object: nobody should have us spend it on what is refused anyway.
    """
    kind = find_kind(f"{review.kind.group}/{review.kind.version}", review.kind.kind)
    if kind is None:
        return review
    if body_bytes > MAX_STORED_BYTES and review.operation in (Operation.CREATE, Operation.UPDATE):
        size = _size(review.object)
        if size > MAX_STORED_BYTES:
            message = (
                f"request.object: has {size} bytes; no more than {MAX_STORED_BYTES} can be stored, make it smaller"
            )
            return Denied(message, code=413)
    version = kind.version(f"{review.kind.group}/{review.kind.version}")
    if version is None:
        return review
    changed: dict[str, Any] = {}
    if review.object is not None:
        given = readable(version.schema, review.object, mistyped=False)
        if given is not review.object:
            changed["object"] = given
    if review.old_object is not None:
        try:
            ObjectMeta.model_validate(review.old_object.get("metadata") or {})
        except ValidationError as error:
            return Denied(unreadable(error, "request.oldObject.metadata"), code=400)
        shallow = cut(review.old_object) if nested_deeper(review.old_object) else review.old_object
        stored = readable(version.schema, shallow)
        if stored is not review.old_object:
            changed["old_object"] = stored
    return msgspec.structs.replace(review, **changed) if changed else review


def _size(obj: Any) -> int:
    try:
        return len(orjson.dumps(obj))
    except (TypeError, ValueError):
        return 0  # nested too deep, which is refused with its field
