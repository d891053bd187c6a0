"""What admission refuses of claim templates, and of their changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.api.statefulset.types import ON_POD_ROLLING_UPDATE
from app.kube.fielderrors import FieldError, forbidden, required
from app.kube.gotext import quote
from app.kube.patches import same
from app.workloads.engine.validation import SPEC

CLAIM_TEMPLATES: Final = SPEC.child("volumeClaimTemplates")


def claims_without_spec(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Claim templates that no API server makes a claim from: OpenKruise admits them, and never has a Pod."""
    templates = spec.get("volumeClaimTemplates")
    for index, template in enumerate(templates if isinstance(templates, list) else ()):
        claim = _claim(template)[1]
        if not claim.get("accessModes") and not claim.get("resources"):
            at = CLAIM_TEMPLATES.index(index).child("spec")
            yield required(at, "a claim needs accessModes and resources.requests.storage")


def repeated_claims(spec: Mapping[str, Any]) -> Iterator[str]:
    """A warning for each name that several claim templates have."""
    claims = [name for name, _ in map(_claim, spec.get("volumeClaimTemplates") or ())]
    for name in sorted({name for name in claims if claims.count(name) > 1}):
        yield f"{CLAIM_TEMPLATES}: {quote(name)} stands there more than once"


def claim_change_errors(
    spec: Mapping[str, Any], former: Mapping[str, Any], expandable: Mapping[str, bool | None]
) -> Iterator[FieldError]:
    """AS-30, AS-31: of claims that grow only sizes may change, and only where the storage class lets them.

    ``expandable``: whether a storage class lets claims grow, by its name ("": the default class); None: it is not
    there; absent: nobody could be asked.
    """
    templates, old = ([_claim(one) for one in one_of.get("volumeClaimTemplates") or ()] for one_of in (spec, former))
    if [name for name, _ in templates] != [name for name, _ in old]:
        words = f"templates cannot be added, removed or renamed with {ON_POD_ROLLING_UPDATE}"
        yield forbidden(CLAIM_TEMPLATES, words)
        return
    for index, ((name, claim), (_, was)) in enumerate(zip(templates, old, strict=True)):
        at, class_name = CLAIM_TEMPLATES.index(index), claim.get("storageClassName")
        if class_name and was.get("storageClassName") and class_name != was["storageClassName"]:
            yield forbidden(at.child("spec", "storageClassName"), "may not be changed")
        if (claim.get("accessModes") or []) != (was.get("accessModes") or []):
            yield forbidden(at.child("spec", "accessModes"), "may not be changed")
        if not same(claim.get("resources") or {}, was.get("resources") or {}):
            called = class_name or ""
            if called in expandable and expandable[called] is not True:
                missing = expandable[called] is None
                words = (
                    f"storage class {quote(called)} is not there"
                    if missing
                    else f"its storage class does not let the claims of {name} grow (allowVolumeExpansion)"
                )
                yield forbidden(at.child("spec", "resources"), words)


def _claim(template: Any) -> tuple[str, Mapping[str, Any]]:
    """The name and the spec of a template."""
    found = template if isinstance(template, Mapping) else {}
    metadata, spec = (one if isinstance(one := found.get(part), Mapping) else {} for part in ("metadata", "spec"))
    return str(metadata.get("name") or ""), spec
