"""AdmissionReview as pydantic models: what is sent to a webhook and what comes back. They document the HTTP API.

Reviews themselves are read by :mod:`app.admission.envelope`, which takes no models on the way of every Pod.
Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_Json = Annotated[dict[str, Any] | None, Field(default=None)]


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class GroupVersionKind(_Model):
    """The kind of an object."""

    group: str = ""
    version: str
    kind: str


class GroupVersionResource(_Model):
    """The resource that is written to."""

    group: str = ""
    version: str
    resource: str


class UserInfo(_Model):
    """Who asks."""

    username: str = ""
    uid: str = ""
    groups: list[str] = Field(default_factory=list)
    extra: dict[str, list[str]] = Field(default_factory=dict)


class AdmissionRequest(_Model):
    """One write that the API server asks about."""

    uid: str = Field(description="The answer carries it too.", min_length=1)
    kind: GroupVersionKind
    resource: GroupVersionResource
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    user_info: UserInfo = Field(default_factory=UserInfo)
    object: _Json = Field(default=None, description="The object as it would be stored; none for DELETE.")
    old_object: _Json = Field(default=None, description="The object as it is stored; none for CREATE.")
    dry_run: bool = False
    options: _Json = None


class AdmissionReview(_Model):
    """A question of the API server."""

    api_version: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
    kind: Literal["AdmissionReview"] = "AdmissionReview"
    request: AdmissionRequest


class Refused(_Model):
    """Why the write is refused."""

    code: int = 403
    message: str = ""
    reason: str = ""


class AdmissionResponse(_Model):
    """The answer."""

    uid: str = Field(description="That of the request.")
    allowed: bool
    status: Refused | None = None
    patch_type: Literal["JSONPatch"] | None = None
    patch: str | None = Field(default=None, description="JSON Patch operations (RFC 6902), in base64.")
    warnings: list[str] = Field(default_factory=list, description="What kubectl prints beside its answer.")


class AdmissionAnswer(_Model):
    """An answer to the API server."""

    api_version: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
    kind: Literal["AdmissionReview"] = "AdmissionReview"
    response: AdmissionResponse
