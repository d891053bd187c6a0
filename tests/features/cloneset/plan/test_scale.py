"""Which Pods are created and deleted now."""

import pytest

from app.features.cloneset.plan.diff import rollout_state
from app.features.cloneset.plan.scale import Removal, ScalePlan, plan_scale
from app.features.cloneset.plan.settings import RollingUpdate, Settings
from app.pods.lifecycle import Hook, Lifecycle
from app.workloads.pods import PodFacts
from tests.features.cloneset.samples import NEW, OLD, pod


def by_name(pods):
    return sorted(pods, key=lambda p: p.name)


def planned(
    pods: list[PodFacts],
    replicas: int,
    *,
    lifecycle: Lifecycle | None = None,
    scale_limit: int | None = None,
    exclude: bool = False,
    **strategy,
) -> ScalePlan:
    settings = Settings(
        replicas=replicas,
        rolling_update=RollingUpdate(**{"max_unavailable": 1, **strategy}),
        scale_max_unavailable=scale_limit,
        exclude_preparing_delete=exclude,
        lifecycle=lifecycle,
    )
    return plan_scale(rollout_state(pods, settings, OLD, NEW, 0.0), by_name)


def removed(plan: ScalePlan) -> list[PodFacts]:
    return [removal.pod for removal in plan.remove]


@pytest.mark.behaviour("CS-93", "CS-99", "CS-100", "CS-195")
@pytest.mark.parametrize(("pods", "replicas", "options", "created", "limited_to"), [
    pytest.param([OLD, OLD, NEW], 4, {"partition": 3}, (1, 0), None, id="missing old Pods come first"),
    pytest.param([NEW] * 3, 7, {"scale_limit": 2}, (0, 2), 2, id="limited"),
    pytest.param([OLD], 2**31 - 1, {"partition": 3}, (2, 498), None, id="500 in one reconcile"),
    pytest.param([OLD], 2**31 - 1, {"partition": "90%"}, (500, 0), None, id="500 old ones in one reconcile"),
])  # fmt: skip
def test_a_scale_out_is_planned(
    pods: list[str], replicas: int, options: dict, created: tuple[int, int], limited_to: int | None
) -> None:
    plan = planned([pod(revision) for revision in pods], replicas, **options)
    assert ((plan.create_current, plan.create_update), plan.limited_to) == (created, limited_to)


@pytest.mark.behaviour("CS-96", "CS-97")
def test_a_pod_preparing_deletion_is_revived_when_needed() -> None:
    leaving = [pod(lifecycle="PreparingDelete", name=name, delete_hooked=True) for name in ("a", "b")]
    pods = [pod(), *leaving]
    assert planned(pods, 2).cancel_deletion == (leaving[0],)
    assert planned(pods, 3).cancel_deletion == tuple(leaving)
    assert planned(pods, 3, lifecycle=Lifecycle(pre_delete=Hook(mark_not_ready=True))) == ScalePlan()


@pytest.mark.behaviour("CS-97")
@pytest.mark.parametrize(("partition", "revived"), [(0, "new"), (1, "new"), (2, "old")])
def test_revived_pods_follow_the_partition(partition: int, revived: str) -> None:
    back = [
        pod(at, lifecycle="PreparingDelete", name=name, delete_hooked=True) for at, name in ((OLD, "old"), (NEW, "new"))
    ]
    for leaving in (back, back[::-1]):
        plan = planned([pod(OLD), *leaving], 2, partition=partition)
        assert [one.name for one in plan.cancel_deletion] == [revived]


@pytest.mark.behaviour("CS-97")
def test_a_marked_pod_is_never_revived() -> None:
    leaving = pod(lifecycle="PreparingDelete", marked=True, delete_hooked=True)
    assert planned([pod(), leaving], 2).cancel_deletion == ()


@pytest.mark.behaviour("CS-97", "CS-137")
def test_reviving_respects_the_surge() -> None:
    """Five Pods are active, one of them marked, and one is preparing deletion: reviving it would make six."""
    pods = [pod(marked=True), *(pod() for _ in range(4)), pod(lifecycle="PreparingDelete", delete_hooked=True)]
    plan = planned(pods, 5)
    assert plan.cancel_deletion == ()
    assert removed(plan) == [pods[0]]


@pytest.mark.behaviour("CS-102", "CS-181")
def test_a_released_hook_deletes_the_pod_first() -> None:
    released = pod(lifecycle="PreparingDelete")
    plan = planned([released, pod(marked=True), pod(), pod()], 2)
    assert plan.remove == (Removal(released, prepare=False),)


@pytest.mark.behaviour("CS-103", "CS-105", "CS-110")
def test_marked_pods_are_deleted_within_the_limit_after_their_hook() -> None:
    broken, hooked, third = pod(marked=True, available=False), pod(marked=True, delete_hooked=True), pod(marked=True)
    plan = planned([broken, hooked, third, pod(), pod()], 5, max_unavailable=2)
    assert plan.remove == (Removal(broken, prepare=False), Removal(hooked, prepare=True))


FRESH = {"available": False, "ready": True}
BROKEN = {"available": False}
MARKED = {"marked": True}


@pytest.mark.behaviour("CS-94", "CS-103", "CS-104", "CS-111", "CS-182")
@pytest.mark.parametrize(("pods", "replicas", "removed_pods"), [
    # OpenKruise allows one deletion too many (W34): an unavailable marked Pod already counts as unavailable.
    pytest.param([MARKED | BROKEN, MARKED, {}, {}, {}], 5, [0], id="a broken marked Pod uses up the limit"),
    pytest.param([{}, {}, {}, {}, MARKED | FRESH], 5, [4], id="a marked Pod within minReadySeconds is not available"),
    pytest.param([BROKEN, {}, {}, {}, MARKED | FRESH], 5, [], id="unless the limit is used up"),
    pytest.param([FRESH] * 5, 3, [], id="ready but unavailable Pods stay without spare capacity"),
    pytest.param([BROKEN, BROKEN, BROKEN, {}], 1, [0, 1, 2], id="Pods that are not ready are not limited"),
    pytest.param([{}, {}, {}, {}, MARKED], 4, [4], id="a named Pod and lower replicas delete exactly this Pod"),
])  # fmt: skip
def test_deletions_respect_the_availability(
    pods: list[dict[str, bool]], replicas: int, removed_pods: list[int]
) -> None:
    made = [pod(name=f"web-{index}", **fields) for index, fields in enumerate(pods)]
    assert removed(planned(made, replicas)) == [made[index] for index in removed_pods]


@pytest.mark.behaviour("CS-104", "CS-181")
def test_no_ordinary_scale_in_while_a_deletion_is_prepared() -> None:
    pods = [pod(lifecycle="PreparingDelete", delete_hooked=True), *(pod() for _ in range(4))]
    assert planned(pods, 2) == ScalePlan()


@pytest.mark.behaviour("CS-104", "CS-183")
def test_scale_in_deletes_old_pods_first_within_the_partition() -> None:
    old = [pod(OLD, name=f"o{i}") for i in range(3)]
    new = [pod(NEW, name=f"n{i}") for i in range(3)]
    assert removed(planned([*new, *old], 4, partition=2)) == [old[0], new[0]]
    assert removed(planned([*new, *old], 4)) == old[:2]


@pytest.mark.behaviour("CS-100")
def test_a_limit_of_zero_does_not_block_deletions() -> None:
    """OpenKruise never finishes the deletion that would free the limit (W39)."""
    released = pod(lifecycle="PreparingDelete", marked=True)
    plan = planned([*(pod() for _ in range(4)), released], 5, scale_limit=1, exclude=True)
    assert (plan.create, plan.limited_to, removed(plan)) == (0, 0, [released])


@pytest.mark.behaviour("CS-105", "CS-135")
def test_a_starting_pod_is_not_yet_prepared_for_deletion() -> None:
    coming = {"available": False, "lifecycle": "PreparingNormal", "marked": True, "awaits_initial_conditions": True}
    hooked, free = pod(delete_hooked=True, **coming), pod(**coming)
    assert planned([pod(), hooked, free], 3).remove == (Removal(free, prepare=False),)
