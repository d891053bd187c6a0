"""Reviews of our own kinds, as their handlers may rely on them, and in the version that is stored.

An API server vouches for the types of a new object's fields, and for nothing in one that was stored before our
definitions were there. What it drops, nulls, may come from others who reach the port.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson
from pydantic import ValidationError

from app.api import names
from app.api.conversion import ConversionError, as_hub
from app.api.jsonvalue import MAX_DEPTH, cut, nested_deeper
from app.api.kind import KindDefinition
from app.api.model import ObjectMeta
from app.api.registry import find_kind
from app.api.requested import is_leaving, unreadable
from app.api.structural import invalid_message, readable
from app.kube.admission import Denied, GroupVersionKind, GroupVersionResource, Operation, Review
from app.kube.fielderrors import Path, forbidden
from app.kube.patches import same

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


def stored_form(review: Review) -> Review | Denied | None:
    """Return the review in the version that is stored; None where it is in that version, or not about a kind of ours.

    A conversion note may add to the spec what the version of the request does not show, so the stored form is judged
    too. It must fit its schema, which an API server does not check after a conversion. [MGR-151]
    """
    kind = find_kind(f"{review.kind.group}/{review.kind.version}", review.kind.kind)
    if kind is None or review.subresource or review.kind.version == kind.hub.name:
        return None
    if review.object is not None and (field := nested_deeper(review.object)):
        return None if is_leaving(review) else Denied(f"{field}: nested deeper than {MAX_DEPTH} levels", code=400)
    try:
        new = as_hub(kind, review.object) if review.object is not None else None
        old = as_hub(kind, review.old_object) if review.old_object is not None else None
    except ConversionError as error:
        # What was stored while nobody judged must not stand in the way of something better.
        return Denied(str(error), code=400) if review.operation is Operation.CREATE else None
    if new is not None:
        if message := invalid_message(kind, kind.hub, {key: value for key, value in new.items() if key != "status"}):
            return Denied(message, code=422, reason="Invalid")
        if old is not None and _changes_only_note(review, new, old):
            return Denied(_note_only(kind, review), code=403)
    return msgspec.structs.replace(
        review,
        kind=GroupVersionKind(kind.group, kind.hub.name, kind.kind),
        resource=GroupVersionResource(kind.group, kind.hub.name, kind.plural),
        object=new,
        old_object=readable(kind.hub.schema, old) if old is not None else None,
    )


def _changes_only_note(review: Review, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether the stored spec changes while the spec in the request does not: its generation would stay the same."""
    given, before = (obj.get("spec") if obj is not None else None for obj in (review.object, review.old_object))
    return same(given, before) and not same(new.get("spec"), old.get("spec"))


def _note_only(kind: KindDefinition, review: Review) -> str:
    path = Path("metadata").child("annotations").key(names.CONVERSION_DATA)
    detail = (
        f"holds what {review.kind.version} cannot express and cannot be changed on its own; "
        f"keep it, or update the object as {kind.resource().api_version}"
    )
    return str(forbidden(path, detail))


def _size(obj: Any) -> int:
    try:
        return len(orjson.dumps(obj))
    except (TypeError, ValueError):
        return 0  # nested too deep, which is refused with its field
