"""ImageListPullJobs with our controllers and the sandbox's API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.features.imagepull.plan import lists as plan
from app.features.imagepull.plan.lists import shown_template, template_hash, template_of
from app.features.imagepull.reconcile import lists as reconcile
from app.features.imagepull.types import ImageListPullJob
from tests.admission.recorded import DATA
from tests.features.imagepull.world import JOBS, LISTS, World, in_world

Json = dict[str, Any]


async def jobs(there: World) -> dict[str, Json]:
    return {one["spec"]["image"]: one for one in (await there.client.list(JOBS, "default")).items}


async def parallelism(there: World) -> dict[str, int | None]:
    """Return the parallelism of the job for each image."""
    return {image: one["spec"].get("parallelism") for image, one in (await jobs(there)).items()}


@pytest.mark.behaviour("IMG-70", "IMG-72", "IMG-73", "IMG-74", "IMG-75")
@in_world
async def test_each_image_has_a_job_and_the_list_completes_with_the_last(there: World) -> None:
    await there.nodes("n1", "n2")
    there.pull = lambda node, image: "Failed" if (node, image) == ("n2", "b:1") else "Succeeded"
    await there.list_job("a:1", "b:1", "c:1", parallelism=2)
    status = await there.counts("several", LISTS, desired=3, completed=3, succeeded=2)
    assert status["completionTime"]
    found = await jobs(there)
    assert set(found) == {"a:1", "b:1", "c:1"}
    (failed,) = status["failedImageStatuses"]
    assert (failed["name"], failed["imagePullJob"]) == ("b:1", found["b:1"]["metadata"]["name"])
    child = found["a:1"]
    assert child["metadata"]["name"].startswith("several-")
    (owner,) = child["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ImageListPullJob", "several", True)
    made = await there.client.get(LISTS, "several", "default")
    hashes = {one["metadata"]["labels"]["controller-revision-hash"] for one in (*found.values(), made)}
    assert len(hashes) == 1
    await there.settled()
    told = await there.events("Successful create ImagePullJob")
    assert [one["message"] for one in told] == ["Create 3 ImagePullJob"]


@pytest.mark.behaviour("IMG-73", "IMG-74", "IMG-76")
@in_world
async def test_images_and_template_may_change(there: World) -> None:
    await there.nodes("n1")
    never = {"type": "Never"}
    await there.list_job("a:1", "b:1", completionPolicy=never)
    await there.counts("several", LISTS, succeeded=2)
    before = await jobs(there)
    await there.client.patch(LISTS, "several", {"spec": {"images": ["b:1", "c:1"]}}, "default")

    await there.becomes(lambda: parallelism(there), {"b:1": None, "c:1": None})
    await there.counts("several", LISTS, desired=2, succeeded=2)
    after = await jobs(there)
    assert after["b:1"]["metadata"]["uid"] == before["b:1"]["metadata"]["uid"]
    await there.client.patch(LISTS, "several", {"spec": {"parallelism": 3}}, "default")
    await there.becomes(lambda: parallelism(there), {"b:1": 3, "c:1": 3})
    await there.settled()
    assert len((await there.client.list(JOBS, "default")).items) == 2
    assert "completionTime" not in await there.status("several", LISTS)
    told = {one["reason"] for one in await there.events()}
    assert "Successful delete ImagePullJob" in told


@pytest.mark.behaviour("IMG-73")
@in_world
async def test_an_edited_job_is_kept_until_the_template_changes(there: World) -> None:
    """Someone else's webhook may also add to a job: replacing it would never end."""
    await there.nodes("n1")
    await there.list_job("a:1", completionPolicy={"type": "Never"})
    await there.counts("several", LISTS, succeeded=1)
    before = (await jobs(there))["a:1"]["metadata"]
    await there.client.patch(JOBS, before["name"], {"spec": {"parallelism": 7}}, "default")
    await there.settled()
    after = (await jobs(there))["a:1"]
    assert (after["metadata"]["uid"], after["spec"]["parallelism"]) == (before["uid"], 7)
    await there.client.patch(LISTS, "several", {"spec": {"parallelism": 3}}, "default")
    await there.settled()
    assert await parallelism(there) == {"a:1": 3}


@pytest.mark.behaviour("IMG-73")
@in_world
async def test_a_list_and_its_jobs_are_compared_once(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """This takes long for large specs, and every change of a job causes a reconcile."""
    compared: list[str] = []

    def note(module: Any, function: str, called: Callable[..., str]) -> None:
        real = getattr(module, function)

        def noted(*given: Any) -> Any:
            compared.append(called(*given))
            return real(*given)

        monkeypatch.setattr(module, function, noted)

    note(plan, "is_up_to_date", lambda child, _template: child.spec.image)
    note(plan, "template_hash", lambda _template: "hash")
    note(reconcile, "go_error", lambda _type, _value, path: path)
    await there.nodes("n1")
    await there.list_job("a:1", "b:1", completionPolicy={"type": "Never"})
    await there.counts("several", LISTS, succeeded=2)
    await there.settled()
    assert sorted(compared) == ["hash", "spec"]
    await there.client.patch(LISTS, "several", {"spec": {"parallelism": 3}}, "default")
    await there.settled()
    # Only jobs with another hash are compared.
    assert sorted(compared) == ["a:1", "b:1", "hash", "hash", "spec", "spec"]


@pytest.mark.behaviour("IMG-71", "IMG-104")
@in_world
async def test_the_ttl_belongs_to_the_list_and_no_image_is_pulled_twice(there: World) -> None:
    await there.nodes("n1")
    there.pull = lambda node, image: "Succeeded" if image == "a:1" else None
    await there.list_job("a:1", "b:1", completionPolicy={"ttlSecondsAfterFinished": 20})
    await there.counts("several", LISTS, succeeded=1)
    child = (await jobs(there))["a:1"]
    assert child["spec"]["completionPolicy"] == {"type": "Always", "ttlSecondsAfterFinished": 20}
    first = child["metadata"]["uid"]
    await there.settled(60)
    assert (await jobs(there))["a:1"]["metadata"]["uid"] == first
    there.pull = lambda node, image: "Succeeded"
    await there.counts("several", LISTS, succeeded=2)

    # Its TTL has passed; it is not created again.
    await there.becomes(lambda: parallelism(there), {"b:1": None}, 15)
    assert await there.get(LISTS, "several", "default") is not None
    await there.settled(25)
    assert await there.get(LISTS, "several", "default") is None
    made = [one["message"] for one in await there.events("Successful create ImagePullJob")]
    assert made == ["Create 2 ImagePullJob"]


def template(**spec: Any) -> Json:
    return template_of(ImageListPullJob.model_validate({"spec": {"images": ["a:1"], **spec}}))


@pytest.mark.behaviour("IMG-70")
def test_the_hash_matches_openkruise() -> None:
    items = json.loads((DATA / "13-node-agent.json").read_text("utf-8"))["items"]
    (recorded,) = (one for one in items if one["kind"] == "ImageListPullJob")
    found = template_hash(template_of(ImageListPullJob.model_validate(recorded)))
    assert found == recorded["metadata"]["labels"]["controller-revision-hash"] == "58444dc485"


@pytest.mark.behaviour("IMG-70")
def test_hashed_values_include_their_types() -> None:
    shown = shown_template(
        template(
            completionPolicy={"type": "Never"},
            pullSecrets=["s", "t"],
            selector={
                "names": ["n1"],
                "matchLabels": {"b": "2", "a": "1"},
                "matchExpressions": [
                    {"key": "k", "operator": "In", "values": ["x", "y"]},
                    {"key": "l", "operator": "Exists"},
                ],
            },
            podSelector={},
            parallelism="5",
            sandboxConfig={"labels": {"l": "v"}},
            imagePullPolicy="Always",
        )
    )
    assert shown == (
        "(v1beta1.ImagePullJobTemplate){PullSecrets:([]string)[s t] "
        "Selector:(*v1beta1.ImagePullJobNodeSelector){Names:([]string)[n1] LabelSelector:(v1.LabelSelector){"
        "MatchLabels:(map[string]string)map[a:1 b:2] MatchExpressions:([]v1.LabelSelectorRequirement)["
        "{Key:(string)k Operator:(v1.LabelSelectorOperator)In Values:([]string)[x y]} "
        "{Key:(string)l Operator:(v1.LabelSelectorOperator)Exists Values:([]string)<nil>}]}} "
        "PodSelector:(*v1beta1.ImagePullJobPodSelector){LabelSelector:(v1.LabelSelector){"
        "MatchLabels:(map[string]string)<nil> MatchExpressions:([]v1.LabelSelectorRequirement)<nil>}} "
        "Parallelism:(*intstr.IntOrString){Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)5} "
        "PullPolicy:(*v1beta1.PullPolicy)<nil> "
        "CompletionPolicy:(v1beta1.CompletionPolicy){Type:(v1beta1.CompletionPolicyType)Never "
        "ActiveDeadlineSeconds:(*int64)<nil> TTLSecondsAfterFinished:(*int32)<nil>} "
        "SandboxConfig:(*v1beta1.SandboxConfig){Labels:(map[string]string)map[l:v] "
        "Annotations:(map[string]string)<nil>} ImagePullPolicy:(v1beta1.ImagePullPolicy)Always}"
    )
