"""``pykruise plan --from statefulset/NAME``: what becomes of the Pods, claims and revisions of a native StatefulSet
when it is moved over (AS-38, AS-42)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api.statefulset import STATEFUL_SET
from app.kube.client import Client
from app.kube.objects import PersistentVolumeClaim, Pod, decode_persistent_volume_claim
from app.kube.resources import PERSISTENTVOLUMECLAIMS, STATEFULSETS
from app.kube.selectors import SelectorError
from app.pods.ordinals import ordinal_of
from app.pods.revisions import short_hash
from app.slices.commands import CommandError, Report
from app.slices.options import Enabled
from app.workloads.engine.moving import becomes, moving_steps, native_workload
from app.workloads.engine.pods import pod_facts
from app.workloads.engine.preview import Preview
from app.workloads.statefulset.commands import parsed
from app.workloads.statefulset.plan.preview import preview
from app.workloads.statefulset.plan.resolved import resolve_spec
from app.workloads.statefulset.plan.settings import Gates

RESOURCE: Final = STATEFUL_SET.resource()
COLUMNS: Final = ("pod", "revision", "claims", "becomes")


async def moving(client: Client, namespace: str, name: str, enabled: Enabled) -> Report:
    """What would happen; nothing is changed. Raises CommandError, or KubeError with what the API server refuses."""
    try:
        native = await native_workload(client, STATEFULSETS, RESOURCE, namespace, name)
        resolved = resolve_spec(parsed(native.stored), Gates.of(enabled))
    except SelectorError as error:
        raise CommandError(f"StatefulSet {namespace}/{name}: spec.selector: {error}") from None
    pods = [pod for pod in native.pods if ordinal_of(name, pod.metadata.name) >= 0]
    facts = [pod_facts(pod, resolved.settings) for pod in pods]
    revisions = native.revisions_to_come(resolved.content)
    coming = preview(resolved, facts, revisions, client.clock.now().timestamp())
    claims = (await client.list(PERSISTENTVOLUMECLAIMS, namespace, decode=decode_persistent_volume_claim)).items
    templates = [str(one["metadata"]["name"]) for one in native.object["spec"].get("volumeClaimTemplates") or ()]
    pods.sort(key=lambda pod: ordinal_of(name, pod.metadata.name))
    return moving_report(namespace, name, pods, templates, claims, coming)


def moving_report(
    namespace: str,
    name: str,
    pods: Sequence[Pod],
    templates: Sequence[str],
    claims: Sequence[PersistentVolumeClaim],
    coming: Preview,
) -> Report:
    """The report. Pure. ``templates``: names of claim templates; ``claims``: those of the namespace."""
    present = {claim.metadata.name for claim in claims if claim.metadata.deletion_timestamp is None}
    rows = []
    for pod in pods:
        found = [f"{template}-{pod.metadata.name}" for template in templates]
        said = ", ".join(claim if claim in present else f"{claim} (missing: made anew)" for claim in found) or "-"
        revision = short_hash(pod.metadata.labels.get("controller-revision-hash", "-"))
        rows.append((pod.metadata.name, revision, said, becomes(coming, pod.metadata.name)))
    there = {pod.metadata.name for pod in pods}
    kept = sum(coming.of(pod) is None for pod in there)
    new = [one.pod for one in coming.steps if one.pod not in there]
    notes = [f"{', '.join(new)}: made, as the StatefulSet wants more Pods than there are"] if new else []
    if templates:
        notes.append(
            "claims keep their names, and Pods find them by these; none is deleted or made for a Pod that stays"
        )
    notes.append("a scaler or budget that names apps/v1 has to name apps.kruise.io/v1beta1 afterwards")
    todo = moving_steps(STATEFULSETS, RESOURCE, namespace, name)
    if kept < len(pods):
        held = max(ordinal_of(name, pod.metadata.name) for pod in pods) + 1
        hold = f"set spec.updateStrategy.rollingUpdate.partition: {held} in {name}.yaml"
        todo.insert(1, f"{hold}: then no Pod is touched until you lower it")
    stay = (
        "all of its Pods stay as they are" if kept == len(pods) else f"{kept} of its {len(pods)} Pods stay as they are"
    )
    head = f"native StatefulSet {namespace}/{name}, moved to {RESOURCE.api_version}: {stay}"
    return Report(head, COLUMNS, rows, notes, todo)
