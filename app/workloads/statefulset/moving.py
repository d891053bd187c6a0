"""``pykruise plan --from statefulset/NAME``: what becomes of the Pods, claims and revisions of a native StatefulSet
when it is moved over (AS-38, AS-42)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.api.statefulset import STATEFUL_SET
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.objects import (
    PersistentVolumeClaim,
    Pod,
    decode_controller_revision,
    decode_persistent_volume_claim,
    decode_pod,
)
from app.kube.resources import CONTROLLERREVISIONS, PERSISTENTVOLUMECLAIMS, PODS, STATEFULSETS
from app.kube.selectors import SelectorError, to_query
from app.pods.ordinals import ordinal_of
from app.pods.revisions import in_order, revision_of, short_hash
from app.slices.commands import CommandError, Report
from app.slices.options import Enabled
from app.workloads.engine.kind import WorkloadKind
from app.workloads.engine.moving import moved_manifest
from app.workloads.engine.pods import pod_facts
from app.workloads.engine.preview import Preview
from app.workloads.engine.reading import revisions_to_come
from app.workloads.statefulset.commands import parsed
from app.workloads.statefulset.plan.preview import preview
from app.workloads.statefulset.plan.resolved import resolve_spec
from app.workloads.statefulset.plan.settings import Gates

RESOURCE: Final = STATEFUL_SET.resource()
NATIVE: Final = WorkloadKind(STATEFULSETS)
COLUMNS: Final = ("pod", "revision", "claims", "becomes")
#: Fields of the metadata that a new object must not have.
_LEFT_OUT: Final = r"uid\|resourceVersion"


async def moving(client: Client, namespace: str, name: str, enabled: Enabled) -> Report:
    """What would happen; nothing is changed. Raises CommandError, or KubeError with what the API server refuses."""
    try:
        native: Mapping[str, Any] = await client.get(STATEFULSETS, name, namespace)
    except NotFound:
        way_out = f"kubectl get statefulsets.apps -n {namespace} shows those there are; name another namespace with -n"
        raise CommandError(f"StatefulSet {namespace}/{name}: there is no native one of this name; {way_out}") from None
    if native["metadata"].get("deletionTimestamp"):
        raise CommandError(f"StatefulSet {namespace}/{name}: is being deleted")
    # The API server and the webhooks say what they would store, and refuse what cannot be moved.
    stored = await client.create(RESOURCE, moved_manifest(native, RESOURCE), namespace, dry_run=True)
    owner = parsed(stored)
    try:
        resolved = resolve_spec(owner, Gates.of(enabled))
        query = to_query(owner.spec.selector)
    except SelectorError as error:
        raise CommandError(f"StatefulSet {namespace}/{name}: spec.selector: {error}") from None
    uid = str(native["metadata"]["uid"])
    listed = (await client.list(PODS, namespace, label_selector=query, decode=decode_pod)).items
    pods = [pod for pod in listed if NATIVE.manages(pod.metadata, uid) and ordinal_of(name, pod.metadata.name) >= 0]
    recorded = (
        await client.list(CONTROLLERREVISIONS, namespace, label_selector=query, decode=decode_controller_revision)
    ).items
    own = [revision_of(one) for one in recorded if NATIVE.manages(one.metadata, uid)]
    status = native.get("status") or {}
    revisions = revisions_to_come(
        resolved.content,
        in_order(own),
        str(status.get("currentRevision") or ""),
        int(status.get("collisionCount") or 0),
    )
    facts = [pod_facts(pod, resolved.settings) for pod in pods]
    coming = preview(resolved, facts, revisions, client.clock.now().timestamp())
    claims = (await client.list(PERSISTENTVOLUMECLAIMS, namespace, decode=decode_persistent_volume_claim)).items
    templates = [str(one["metadata"]["name"]) for one in native["spec"].get("volumeClaimTemplates") or ()]
    return told(
        namespace, name, sorted(pods, key=lambda pod: ordinal_of(name, pod.metadata.name)), templates, claims, coming
    )


def told(
    namespace: str,
    name: str,
    pods: Sequence[Pod],
    templates: Sequence[str],
    claims: Sequence[PersistentVolumeClaim],
    coming: Preview,
) -> Report:
    """The report. Pure. ``templates``: names of claim templates; ``claims``: those of the namespace."""
    present = {claim.metadata.name for claim in claims if claim.metadata.deletion_timestamp is None}
    rows, kept = [], 0
    for pod in pods:
        at = pod.metadata.name
        turn = coming.of(at)
        if turn is None:
            becomes, kept = "adopted as it is", kept + 1
        else:
            becomes = f"adopted, then {turn.action.value}d".replace("update in placed", "updated in place")
            becomes += f": {turn.reason}" if turn.reason else ""
        found = [f"{template}-{at}" for template in templates]
        said = ", ".join(claim if claim in present else f"{claim} (missing: made anew)" for claim in found) or "-"
        rows.append((at, short_hash(pod.metadata.labels.get("controller-revision-hash", "-")), said, becomes))
    new = [one.pod for one in coming.steps if one.pod not in {pod.metadata.name for pod in pods}]
    how_many = (
        "all of its Pods stay as they are" if kept == len(pods) else f"{kept} of its {len(pods)} Pods stay as they are"
    )
    notes = [f"{', '.join(new)}: made, as the StatefulSet wants more Pods than there are"] if new else []
    if templates:
        notes.append(
            "claims keep their names, and Pods find them by these; none is deleted or made for a Pod that stays"
        )
    notes.append("a scaler or budget that names apps/v1 has to name apps.kruise.io/v1beta1 afterwards")
    where = f"-n {namespace}"
    rename = f"s|^apiVersion: apps/v1$|apiVersion: {RESOURCE.api_version}|"
    todo = [
        f"kubectl get statefulset.apps {name} {where} -o yaml"
        rf" | sed -e '{rename}' -e '/^  \({_LEFT_OUT}\):/d' > {name}.yaml",
        f"kubectl delete statefulset.apps {name} {where} --cascade=orphan    # its Pods go on without it",
        f"kubectl create -f {name}.yaml    # and are adopted",
    ]
    if kept < len(pods):
        held = max(ordinal_of(name, pod.metadata.name) for pod in pods) + 1
        hold = f"set spec.updateStrategy.rollingUpdate.partition: {held} in {name}.yaml"
        todo.insert(1, f"{hold}: then no Pod is touched until you lower it")
    head = f"native StatefulSet {namespace}/{name}, moved to {RESOURCE.api_version}: {how_many}"
    return Report(head, COLUMNS, rows, notes, todo)
