"""ContainerRecreateRequest webhook: copies the Pod data that the node agent needs into the request. [CRR-2 … CRR-5]"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from app.api import names
from app.api.conversion import ConversionError, as_hub
from app.api.webhooks import mutating_webhook, version_to_default
from app.features.containerrecreate.defaults import with_defaults, with_pod
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.containerrecreate.validation import pod_errors, spec_errors, update_errors
from app.framework.options import Enabled, gate_is_off
from app.kube.admission import STRANGER, Allowed, Decision, Denied, Handler, Operation, Patched, PolicyRule, Review
from app.kube.client import Client, get_or_none
from app.kube.errors import KubeError, message_of
from app.kube.fielderrors import FieldError, Path, aggregate, forbidden, invalid, not_found, shortened
from app.kube.jsonvalues import without_managed_fields
from app.kube.patches import diff
from app.kube.resources import NODES, PODS, SUBJECTACCESSREVIEWS

DAEMON_GATE: Final = "KruiseDaemon"

MUTATE: Final = mutating_webhook(
    CONTAINER_RECREATE_REQUEST,
    "Fills in the Pod data that the node agent needs; rejects invalid requests and updates",
    PolicyRule(("get",), ("",), ("nodes", "pods")),
    PolicyRule(("create",), (SUBJECTACCESSREVIEWS.group,), (SUBJECTACCESSREVIEWS.plural,)),
    when=(),
)
WEBHOOKS: Final = (MUTATE,)

_POD_NAME: Final = Path("spec").child("podName")
#: Message to unknown callers. It is the same for every Pod, so that it reveals nothing about the Pod. [CRR-69]
UNKNOWN_CALLER: Final = (
    "the response would describe the Pod, but the caller's address is not in EndpointSlice default/kubernetes. "
    "If API servers call through konnectivity or an overlay network, start the manager with --client-ca-file "
    "(chart: manager.extraArgs; docs/installing.md, Who may call the webhooks)"
)


def handlers(lookups: Lookups, enabled: Enabled) -> tuple[Handler, ...]:
    """Return the webhook declaration with its handler."""
    return (Handler(MUTATE, partial(mutate, lookups, enabled)),)


async def mutate(lookups: Lookups, enabled: Enabled, review: Review) -> Decision:
    """Validate and fill in a request in one call, so that the Pod is looked up only once. [CRR-2 … CRR-5]"""
    given = without_managed_fields(review.object)
    version = version_to_default(CONTAINER_RECREATE_REQUEST, given)
    if isinstance(version, Denied):
        return version
    if review.operation == Operation.UPDATE:
        return _judged_update(given, without_managed_fields(review.old_object))
    if not enabled(DAEMON_GATE):
        return Denied(gate_is_off(DAEMON_GATE), code=403)
    spec = with_defaults(given).get("spec") or {}
    if errors := spec_errors(spec):
        return Denied(aggregate(errors), code=400)
    # Checked before any lookup, so that the response is the same for every Pod. [CRR-69]
    if STRANGER.get():
        return Denied(UNKNOWN_CALLER, code=403)
    try:
        if not await lookups.may_read_pod(review, spec["podName"]):
            user, name = shortened(review.username), shortened(spec["podName"])
            detail = f"user {user} cannot get Pods in namespace {review.namespace}; a request reveals Pod data"
            return Denied(str(forbidden(_POD_NAME, f"{name}: {detail}")), code=403)
        pod = await lookups.pod(review.namespace, spec["podName"])
        if pod is None:
            there = f"there is no such Pod in namespace {review.namespace}"
            return Denied(str(not_found(_POD_NAME, spec["podName"], there)), code=400)
        if errors := pod_errors(spec, pod):
            return Denied(aggregate(errors), code=400)
        name = pod["spec"]["nodeName"]
        node = await lookups.node(name)
    except KubeError as error:
        return Denied(f"{_POD_NAME}: {message_of(error)}", code=500)
    if node is None:
        return Denied(str(invalid(_POD_NAME, spec["podName"], f"its Node {name} does not exist")), code=400)
    labels = (node.get("metadata") or {}).get("labels") or {}
    filled = with_pod(given, pod, virtual_node=labels.get("type") == names.VIRTUAL_KUBELET)
    if noted := _noted_errors(filled):
        return Denied(aggregate(noted), code=403)
    return Patched(tuple(diff(given, filled, rule="CRR-4")))


def _judged_update(given: Mapping[str, Any], former: Mapping[str, Any]) -> Decision:
    """Validate an update in the version of the request and in the stored one, because a conversion note may make them
    differ. [CRR-2]"""
    errors = update_errors(given, former)
    if not errors:
        try:
            errors = update_errors(
                as_hub(CONTAINER_RECREATE_REQUEST, given), as_hub(CONTAINER_RECREATE_REQUEST, former)
            )
        except ConversionError as error:
            return Denied(str(error), code=400)
    return Denied(aggregate(errors), code=403) if errors else Allowed()


def _noted_errors(filled: Mapping[str, Any]) -> list[FieldError]:
    """Return an error if a conversion note would change the filled-in fields once the request is stored. [MGR-151]"""
    stored = as_hub(CONTAINER_RECREATE_REQUEST, filled)
    before, after = (obj.get("metadata") or {} for obj in (filled, stored))
    if filled.get("spec") == stored.get("spec") and before.get("labels") == after.get("labels"):
        return []
    path = Path("metadata").child("annotations").key(names.CONVERSION_DATA)
    return [forbidden(path, "must not change the spec or the labels of a request; leave it out")]


class Lookups:
    """Reads live objects from the API server, because the filled-in fields must be current. Without a client, no
    objects are found. All methods raise KubeError."""

    def __init__(self, client: Client | None) -> None:
        self._client = client

    async def may_read_pod(self, review: Review, name: str) -> bool:
        """Ask the API server's authorizer whether the user of the review may get this Pod in the review's namespace."""
        if self._client is None:
            return True
        if not review.username and not review.groups:
            return False
        attributes = {"namespace": review.namespace, "verb": "get", "version": "v1", "resource": "pods", "name": name}
        # Some authorizers also use other fields, such as the scopes of a token in ``extra``.
        rest = {field: review.user[field] for field in ("uid", "extra") if review.user.get(field)}
        spec = {"user": review.username, "groups": list(review.groups), **rest, "resourceAttributes": attributes}
        resource = SUBJECTACCESSREVIEWS
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer: Mapping[str, Any] = await self._client.create(resource, body)
        return (answer.get("status") or {}).get("allowed") is True

    async def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the live Pod (JSON), or None."""
        return await get_or_none(self._client, PODS, name, namespace) if self._client is not None else None

    async def node(self, name: str) -> Mapping[str, Any] | None:
        """Return the live Node (JSON), or None."""
        return await get_or_none(self._client, NODES, name) if self._client is not None else None
