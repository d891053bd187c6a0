"""Write Pods and claims: concurrently, up to a limit, and with the UID as a precondition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson

from app.api import names
from app.api.gojson import GoType, GoTypeError, dumps_go, normalized
from app.api.gopod import CLAIM, POD_TEMPLATE
from app.api.model import KubeObject
from app.kube.client import Client, Decode, PatchType, get_or_none
from app.kube.clock import CONFLICT_ATTEMPTS, conflict_wait
from app.kube.concurrency import Remembered, batches, concurrently
from app.kube.errors import UNANSWERED, AlreadyExists, Conflict, KubeError, NotFound, is_namespace_ending, message_of
from app.kube.events import EventRecorder, reference
from app.kube.fielderrors import shortened
from app.kube.objects import Object, PersistentVolumeClaim, Pod, decode_metadata, decode_pod
from app.kube.resources import PERSISTENTVOLUMECLAIMS, PODS
from app.kube.selectors import Selector
from app.pods.admission import UNTRACKED
from app.pods.claims import pod_reference
from app.pods.disruption_budget import Disruption, DisruptionBudget, NoBudget
from app.pods.inplace.batch import has_resize_subresource
from app.pods.inplace.state import UpdateSpec
from app.pods.inplace.steps import start, unready_patch
from app.pods.lifecycle import Hook, Lifecycle, LifecycleState, readiness_patch, state_members, state_of, state_patch
from app.pods.node_agents import NodeAgents, NoNodeAgents
from app.pods.predicates import (
    Owner,
    adoption_patch,
    is_active,
    is_controlled_by,
    is_ready,
    release_patch,
    transfer_patch,
)
from app.workloads.pods import NewPod, awaits_initial_conditions
from app.workloads.settings import WorkloadKind
from app.workloads.state import Expectations, PodGoneError, PodHeldError, claim_expectation
from app.workloads.steps import PodRefresh


@dataclass(frozen=True, slots=True)
class Wording:
    """Event messages about Pods, worded as in OpenKruise. The defaults are for CloneSets.

    Placeholders are ``owner`` (the name of the workload), ``pod``, ``revision``, ``why`` and ``body`` (the beginning of
    the Pod's JSON). [CS-156, CS-157]
    """

    created: str = "succeed to create pod {pod}"
    not_created: str = "failed to create pod: {why}, pod: {body}"
    deleted: str = "succeed to delete pod {pod}"
    not_deleted: str = "failed to delete pod {pod}: {why}"
    updated_in_place: str = "successfully update pod {pod} in-place(revision {revision})"


# Writes of a workload. Independent writes run concurrently up to a limit. Expectations are set before a request is sent
# and removed if it fails; events report the result. [CS-52, CS-57]

#: Maximum number of concurrent Pod creations. The API server keeps 25 connections to a webhook. Each request beyond
#: that opens and closes another connection, and a TLS handshake costs more than a review.
MAX_CONCURRENT_CREATIONS: Final = 24
#: Seconds for which the version of the API server is cached.
VERSION_TTL: Final = 600.0
#: Maximum length of a Pod's JSON in a failure message.
MAX_SHOWN_JSON: Final = 200

T = TypeVar("T")
Answer = TypeVar("Answer", bound=Object)


class Writer:
    """Writes Pods and claims for all workloads of a kind."""

    def __init__(
        self, client: Client, events: EventRecorder, kind: WorkloadKind, wording: Wording | None = None
    ) -> None:
        self.wording = wording if wording is not None else Wording()
        self._client = client
        self.clock = client.clock
        self._events = events
        self._kind = kind
        self.expectations = Expectations(client.clock)
        self._version = Remembered(client.clock, self._read_version, seconds=VERSION_TTL)
        #: Budgets to check before a Pod is deleted or taken out of service. [PUB-90]
        self.budget: DisruptionBudget = NoBudget()
        self.agents: NodeAgents = NoNodeAgents()

    async def has_resize_subresource(self) -> bool:
        """Return whether Pods have the subresource ``resize``. Raises any API error. [PM-37]"""
        return has_resize_subresource(await self._version())

    async def _read_version(self) -> str:
        answer = orjson.loads(await self._client.raw("/version"))
        return str(answer.get("gitVersion") or "?") if isinstance(answer, dict) else "?"

    def event(self, workload: KubeObject, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event about the workload. [CS-156 … CS-167]"""
        about = reference(self._kind.resource, workload)
        self._events.event(about, "Warning" if warning else "Normal", reason, message)

    @contextmanager
    def reporting(self, workload: KubeObject, reason: str, text: str) -> Iterator[None]:
        """Record a warning with ``text`` and the error if a write in this block fails. The error is raised again."""
        try:
            yield
        except KubeError as error:
            if not isinstance(error, PodHeldError):
                self.event(workload, reason, f"{text}: {message_of(error)}", warning=True)
            raise

    # ---- creating

    async def create_pods(
        self, workload: KubeObject, wanted: Sequence[NewPod], selector: Selector
    ) -> tuple[int, dict[str, KubeError]]:
        """Create Pods in batches of 1, 2, 4 … until one fails. Return how many were created and the errors by Pod name.
        ``selector`` is the workload's. [CS-101]"""
        uid, made = workload.metadata.uid, 0
        failures: dict[str, KubeError] = {}
        for pod in wanted:
            self.expectations.expect_creation(uid, pod.name)
        for batch in batches(wanted):
            outcomes = await concurrently(
                (self._create(workload, pod, selector) for pod in batch), MAX_CONCURRENT_CREATIONS
            )
            for pod, failure in zip(batch, outcomes, strict=True):
                if failure is None:
                    made += 1
                else:
                    failures[pod.name] = failure
            if failures:
                break
        for pod in wanted[made + len(failures) :]:
            self.expectations.creation_observed(uid, pod.name)
        return made, failures

    async def _create(self, workload: KubeObject, pod: NewPod, selector: Selector) -> KubeError | None:
        metadata = workload.metadata
        try:
            await self.create_claims(workload, pod)
            body = pod.body(self.clock.now())
            by = "" if pod.managed_fields else UNTRACKED
            try:
                _check_selected(selector, body["metadata"]["labels"])
                made = await self._client.create(
                    PODS, body, metadata.namespace, field_manager=by, decode=decode_metadata
                )
                _check_selected(selector, made.metadata.labels)  # admission may have changed them
            except KubeError as error:
                if not await self._was_created(workload, pod.name, error):
                    if self.is_failed_creation(error):
                        shown = _go_json(POD_TEMPLATE, body)
                        words = {"owner": workload.name, "pod": pod.name, "why": message_of(error), "body": shown}
                        text = self.wording.not_created.format(**words)
                        self.event(workload, "FailedCreate", text, warning=True)
                    raise
        except KubeError as error:
            self.expectations.creation_observed(metadata.uid, pod.name)
            return error
        self.event(workload, "SuccessfulCreate", self.wording.created.format(owner=workload.name, pod=pod.name))
        return None

    def is_failed_creation(self, error: KubeError) -> bool:
        """Return whether to record an event if this error prevented the creation of a Pod."""
        return not is_namespace_ending(error)

    async def create_claims(self, workload: KubeObject, pod: NewPod) -> None:
        """Create the claims of a future Pod. Raises any API error."""
        for claim in pod.claims:
            await self.create_claim(workload, claim)

    async def create_claim(self, workload: KubeObject, claim: Mapping[str, Any]) -> None:
        """Create a claim for a future Pod. Raises any API error."""
        metadata, expected = workload.metadata, claim_expectation(claim["metadata"]["name"])
        self.expectations.expect_creation(metadata.uid, expected)
        try:
            await self._client.create(PERSISTENTVOLUMECLAIMS, claim, metadata.namespace, decode=decode_metadata)
        except KubeError as error:
            self.expectations.creation_observed(metadata.uid, expected)
            if not is_namespace_ending(error):
                text = f"failed to create pvc: {message_of(error)}, pvc: {_go_json(CLAIM, claim)}"
                self.event(workload, "FailedCreate", text, warning=True)
            raise

    async def _was_created(self, workload: KubeObject, name: str, error: KubeError) -> bool:
        """Return whether a Pod was created despite the error: the response may have been lost. Creating another Pod
        before this is known might exceed the desired replicas."""
        if not isinstance(error, (*UNANSWERED, AlreadyExists)):
            return False
        try:
            found = await self._live_pod(workload, name)
        except KubeError:
            return False
        return found is not None and is_active(found)

    async def _live_pod(self, workload: KubeObject, name: str) -> Pod | None:
        """Return the Pod of that name from the API server if the workload controls it. Raises any API error."""
        found = await get_or_none(self._client, PODS, name, workload.metadata.namespace, decode=decode_pod)
        if found is None:
            return None
        return found if is_controlled_by(found.metadata, self._kind.owner(workload.metadata)) else None

    # ---- deleting

    async def delete_pod(self, workload: KubeObject, pod: Pod) -> bool:
        """Delete the Pod; the caller deletes its claims. Returns False if another Pod has taken its name and uses the
        claims. Raises PodHeldError and any API error. [CS-105]"""
        uid, name = workload.metadata.uid, pod.metadata.name
        verdict = await self.budget.ask(pod, Disruption.DELETE)
        if not verdict.allowed:
            raise PodHeldError(verdict.reason)
        self.expectations.expect_deletion(uid, name)
        try:
            await self._client.delete(PODS, name, pod.metadata.namespace, uid=pod.metadata.uid, decode=decode_metadata)
        except (NotFound, Conflict) as error:
            # Already deleted or replaced.
            self.expectations.deletion_observed(uid, name)
            return isinstance(error, NotFound)
        except KubeError as error:
            self.expectations.deletion_observed(uid, name)
            if not await self._is_being_deleted(pod, error):
                text = self.wording.not_deleted.format(owner=workload.name, pod=name, why=message_of(error))
                self.event(workload, "FailedDelete", text, warning=True)
                raise
        self.event(workload, "SuccessfulDelete", self.wording.deleted.format(owner=workload.name, pod=name))
        return True

    async def _is_being_deleted(self, pod: Pod, error: KubeError) -> bool:
        """Return whether a Pod is being deleted even though the request got no response."""
        if not isinstance(error, UNANSWERED):
            return False
        try:
            found = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace, decode=decode_pod)
        except NotFound:
            return True
        except KubeError:
            return False
        return found.metadata.uid == pod.metadata.uid and found.metadata.deletion_timestamp is not None

    async def delete_claim(self, workload: KubeObject, claim: PersistentVolumeClaim, *, cleaning: bool = False) -> None:
        """Delete the claim of a deleted Pod (CS-105) or an unused claim (CS-120)."""
        uid, name = workload.metadata.uid, claim.metadata.name
        self.expectations.expect_deletion(uid, claim_expectation(name))
        try:
            await self._client.delete(
                PERSISTENTVOLUMECLAIMS, name, claim.metadata.namespace, uid=claim.metadata.uid, decode=decode_metadata
            )
        except (NotFound, Conflict):
            self.expectations.deletion_observed(uid, claim_expectation(name))
        except KubeError as error:
            self.expectations.deletion_observed(uid, claim_expectation(name))
            what = f"clean up PVC {name}" if cleaning else f"delete pvc {name}"
            self.event(workload, "FailedDelete", f"failed to {what}: {message_of(error)}", warning=True)
            raise

    async def pod_exists(self, workload: KubeObject, name: str) -> bool:
        """Return whether the workload has a Pod of that name on the API server. Raises any API error."""
        return await self._live_pod(workload, name) is not None

    async def hand_over_claim(self, workload: KubeObject, claim: PersistentVolumeClaim, pod: Pod) -> None:
        """Make the Pod the owner of its claim, so that both are deleted together. The Pod has ended or is about to end.
        [CS-120]"""
        body = transfer_patch(claim.metadata, workload.metadata.uid, pod_reference(pod))
        with self.reporting(workload, "FailedUpdate", f"failed to update PVC {claim.metadata.name}"):
            await self.patch_claim(claim, body)

    async def patch_claim(self, claim: PersistentVolumeClaim, body: Mapping[str, Any]) -> None:
        """Apply a strategic merge patch to an existing claim. Ignores a missing claim. Raises any other API error."""
        name, namespace, kind = claim.metadata.name, claim.metadata.namespace, PatchType.STRATEGIC
        with suppress(NotFound):
            await self._client.patch(PERSISTENTVOLUMECLAIMS, name, body, namespace, kind=kind, decode=decode_metadata)

    # ---- changing Pods

    async def patch_pod(self, owner_uid: str, pod: Pod, body: Mapping[str, Any], subresource: str = "") -> None:
        """Send one strategic merge patch. Raises PodGoneError."""
        await self._patch(owner_uid, pod, body, subresource, decode_metadata)

    async def _patch(
        self, owner_uid: str, pod: Pod, body: Mapping[str, Any], subresource: str, decode: Decode[Answer]
    ) -> Answer:
        try:
            written = await self._client.patch(
                PODS,
                pod.metadata.name,
                body,
                pod.metadata.namespace,
                kind=PatchType.STRATEGIC,
                subresource=subresource,
                decode=decode,
            )
        except NotFound:
            raise PodGoneError(pod.metadata.name) from None
        except UNANSWERED:
            await self._expect_live_version(owner_uid, pod)
            raise
        self.expectations.expect_version(owner_uid, written.metadata)
        return written

    async def _expect_live_version(self, owner_uid: str, pod: Pod) -> None:
        """Expect the Pod version on the API server: a write without a response may have been carried out."""
        with suppress(KubeError):
            found = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace, decode=decode_metadata)
            if found.metadata.uid == pod.metadata.uid:
                self.expectations.expect_version(owner_uid, found.metadata)

    async def refresh(self, owner_uid: str, pod: Pod, step: PodRefresh) -> None:
        """Send the writes that one Pod needs. [CS-122]"""
        if step.status is not None:
            await self.patch_pod(owner_uid, pod, step.status, "status")
        await self._resize_and_patch(owner_uid, pod, step.resize, step.patch)

    async def _resize_and_patch(
        self, owner_uid: str, pod: Pod, resize: Mapping[str, Any] | None, patch: Mapping[str, Any] | None
    ) -> None:
        """Set the resources of this version of the Pod, then send the other changes.

        The order matters: the other changes may restart containers, and the kubelet refuses to lower the memory limit
        of a container without statistics. [PM-38]
        """
        if resize is not None:
            seen = {**resize["metadata"], "resourceVersion": pod.metadata.resource_version}
            resized = await self._patch(owner_uid, pod, {**resize, "metadata": seen}, "resize", decode_metadata)
            if patch is not None:
                version = resized.metadata.resource_version
                patch = {**patch, "metadata": {**patch["metadata"], "resourceVersion": version}}
        if patch is not None:
            await self.patch_pod(owner_uid, pod, patch)

    async def set_state(
        self, owner_uid: str, pod: Pod, state: LifecycleState, lifecycle: Lifecycle | None, rearm: Hook | None = None
    ) -> None:
        """Set a lifecycle state and the matching readiness in one write. [PM-71 … PM-73]"""
        was = state_of(pod)

        async def write(found: Pod) -> None:
            if awaits_initial_conditions(found) or state_of(found) != was:
                return  # since the Pod was chosen, it was scheduled, or another leader changed its state
            if state is LifecycleState.PREPARING_UPDATE and _became_ready(pod, found):
                return
            now = self.clock.now()
            body = state_patch(found, state, now, rearm)
            if body is not None:
                body["metadata"]["resourceVersion"] = found.metadata.resource_version
            keys = readiness_patch(found, state, lifecycle, now)
            if body is None and keys is None:
                return
            if keys is None:
                await self.patch_pod(owner_uid, found, body or {})
                return
            metadata = {**keys["metadata"], **(body or {"metadata": {}})["metadata"]}
            await self.patch_pod(owner_uid, found, {**keys, "metadata": metadata}, "status")

        await self._retry_on_conflict(pod, write)

    async def mark_for_deletion(self, owner_uid: str, pod: Pod) -> None:
        """Label the Pod for deletion. [CS-132]"""
        body = {"metadata": {"uid": pod.metadata.uid, "labels": {names.SPECIFIED_DELETE: "true"}}}
        await self.patch_pod(owner_uid, pod, body)

    async def adopt(self, owner: Owner, pod: Pod) -> None:
        """Adopt a matching orphan. The caller must have confirmed that the owner exists. [PM-109]"""
        await self.patch_pod(owner.uid, pod, adoption_patch(pod.metadata, owner.reference))

    async def release(self, owner_uid: str, pod: Pod) -> None:
        await self.patch_pod(owner_uid, pod, release_patch(pod.metadata, owner_uid))

    async def update_in_place(
        self,
        owner_uid: str,
        pod: Pod,
        spec: UpdateSpec,
        labels: Mapping[str, str],
        *,
        revision: str,
        shows_state: bool = True,
    ) -> float | None:
        """Take the Pod out of service, then change it in place. Return the seconds until the next step, if it must
        wait. ``shows_state`` also sets a lifecycle state. [PM-22 … PM-29]

        ``revision`` is the Pod's current revision. Returns None and leaves the Pod to the next reconcile if, since
        it was chosen, its revision or state has changed or it has become ready.
        """
        was = state_of(pod)
        by_subresource = not spec.container_resources or await self.has_resize_subresource()

        async def write(found: Pod) -> float | None:
            at = found.metadata.labels.get(names.CONTROLLER_REVISION_HASH, "")
            overtaken = at != revision or state_of(found) != was or _became_ready(pod, found)
            if overtaken or not is_active(found) or awaits_initial_conditions(found):
                return None
            unready = unready_patch(found, spec, self.clock.now())
            if unready is not None:
                found = await self._patch(owner_uid, found, unready, "status", decode_pod)
            now = self.clock.now()
            state_labels, annotations = state_members(LifecycleState.UPDATING, now) if shows_state else ({}, {})
            begun = start(
                found,
                spec,
                now,
                labels={**labels, **state_labels},
                annotations=annotations,
                resize_subresource=by_subresource,
            )
            await self._resize_and_patch(owner_uid, found, begun.resize, begun.patch)
            return float(begun.delay)

        return await self._retry_on_conflict(pod, write)

    async def _retry_on_conflict(self, pod: Pod, write: Callable[[Pod], Awaitable[T]]) -> T:
        """Try with the cached Pod; after a conflict, retry with the live one. Raises PodGoneError. [PM-29]"""
        uid = pod.metadata.uid
        for attempt in range(CONFLICT_ATTEMPTS):
            try:
                return await write(pod)
            except Conflict:
                if attempt == CONFLICT_ATTEMPTS - 1:
                    raise
                await self.clock.sleep(conflict_wait(attempt) if attempt else 0.0)
            try:
                pod = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace, decode=decode_pod)
            except NotFound:
                raise PodGoneError(pod.metadata.name) from None
            if pod.metadata.uid != uid:
                raise PodGoneError(pod.metadata.name)
        raise AssertionError("unreachable")


def _check_selected(selector: Selector, labels: Mapping[str, str]) -> None:
    """Raise KubeError if the selector does not match a new Pod. The workload would release and replace such Pods in an
    endless loop."""
    if not selector.matches(labels):
        raise KubeError("`selector` does not match the labels of new Pods")


def _became_ready(chosen: Pod, found: Pod) -> bool:
    """Return whether a Pod that counted as unavailable when it was chosen has become ready. Updating it now would
    reduce availability, which was not checked against maxUnavailable or a budget."""
    return is_ready(found) and not is_ready(chosen)


def _go_json(go_type: GoType, body: Mapping[str, Any]) -> str:
    """Return the beginning of the object's JSON as Go marshals it. [CS-157]"""
    content = {key: value for key, value in body.items() if key not in ("apiVersion", "kind")}
    with suppress(GoTypeError):  # a template that bypassed admission may be invalid; it is shown unchanged
        content = normalized(go_type, content)
    text = dumps_go(content)
    return shortened(text, MAX_SHOWN_JSON)
