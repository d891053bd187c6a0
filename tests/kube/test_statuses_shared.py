"""Many writers of one count: grants add up to the limit, and concurrent requests share a write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.kube import statuses as statuses_module
from app.kube.client import Client
from app.kube.errors import Conflict, RequestInfo, TransportError
from app.kube.objects import ObjectMeta, Struct, decoder
from app.kube.patches import merge_difference, merge_patch
from app.kube.resources import ObjectKey, Resource
from app.kube.rulings import Ruling
from app.kube.statuses import DEADLINE, SharedStatus
from app.kube.wire import Request, Response
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer, json_response, status_body, virtual

THINGS = Resource("example.com", "v1", "things", "Thing")
KEY = ObjectKey("shop", "a")
PATH = "/apis/example.com/v1/namespaces/shop/things/a"


class ThingStatus(Struct, frozen=True):
    left: int = 0
    taken: dict[str, int] = msgspec.field(default_factory=dict)


class Thing(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: ThingStatus = ThingStatus()


decode = decoder(Thing)


@dataclass
class Api(MemoryServer):
    """An API server with one Thing and its status subresource. Responses to writes may be lost."""

    lose: Callable[[Request], bool] = field(default=lambda _: False)

    async def request(self, request: Request) -> Response:
        request = replace(request, path=request.path.removesuffix("/status"))
        answer = await super().request(request)
        if request.method == "PATCH" and self.lose(request):
            raise TransportError(RequestInfo(request.method, request.target), "connection lost")
        return answer

    def start(self, left: int) -> Thing:
        self._store(PATH, {"metadata": {"name": "a", "namespace": "shop", "uid": "u"}, "status": {"left": left}})
        return self.thing

    @property
    def thing(self) -> Thing:
        return msgspec.convert(self.objects[PATH], Thing)

    def count(self, method: str) -> int:
        return sum(request.method == method for request in self.requests)


def take(name: str, *, provisional: bool = True) -> Callable[[Thing | None], Ruling[Thing, str]]:
    def decision(thing: Thing | None) -> Ruling[Thing, str]:
        if thing is None:
            return Ruling("gone")
        status = thing.status
        if name in status.taken:
            return Ruling("given before")
        if status.left <= 0:
            return Ruling("not now", provisional=provisional)
        after = ThingStatus(status.left - 1, {**status.taken, name: 1})
        return Ruling("given", msgspec.structs.replace(thing, status=after))

    return decision


def replica(
    api: MemoryServer,
    cached: Callable[[ObjectKey], Thing | None] = lambda _: None,
    *,
    together: int = 500,
    seed: int = 0,
) -> SharedStatus[Thing]:
    return SharedStatus(
        Client(api, VirtualClock()),
        THINGS,
        cached,
        Random(seed),
        decode=decode,
        status_of=lambda thing: msgspec.to_builtins(thing.status),
        together=together,
    )


def with_cache(left: int, *, together: int = 500, **options: Any) -> tuple[Api, SharedStatus[Thing], Thing]:
    """Return a server, a writer whose cache stays at the first version, and that version."""
    api = Api(**options)
    first = api.start(left)
    return api, replica(api, lambda _: first, together=together), first


@pytest.mark.behaviour("PUB-80", "PUB-85")
@pytest.mark.parametrize(("together", "writes"), [(500, 1), (4, 3)])
@virtual
async def test_concurrent_requests_share_a_decision_and_a_write(together: int, writes: int) -> None:
    api, statuses, _first = with_cache(10, together=together, delay=0.003)
    answers = await asyncio.gather(*(statuses.decide(KEY, take(f"p{i}")) for i in range(40)))
    assert answers == ["given"] * 10 + ["not now"] * 30
    assert (api.count("PATCH"), api.count("GET")) == (writes, 0)
    assert api.thing.status.taken.keys() == {f"p{i}" for i in range(10)}


@pytest.mark.behaviour("PUB-80")
@virtual
async def test_callers_during_a_write_share_the_next_one() -> None:
    api, statuses, _first = with_cache(100, delay=0.003)
    asked = []
    for index in range(30):
        asked.append(asyncio.create_task(statuses.decide(KEY, take(f"p{index}"))))
        await asyncio.sleep(0.0005)
    assert await asyncio.gather(*asked) == ["given"] * 30
    # One request every half millisecond, 3 ms per write.
    assert api.count("PATCH") < 8


@pytest.mark.behaviour("PUB-81")
@virtual
async def test_own_writes_count_before_the_watch_event() -> None:
    api, statuses, _stale = with_cache(2)
    assert [await statuses.decide(KEY, take(f"p{i}")) for i in range(3)] == ["given", "given", "not now"]
    assert (api.count("PATCH"), api.count("GET")) == (2, 0)
    fresher = api.thing
    assert statuses.freshest(KEY) == fresher
    # Once the watch has caught up, the cache is used again.
    statuses = replica(api, lambda _: fresher)
    assert statuses.freshest(KEY) is fresher


@pytest.mark.behaviour("PUB-82", "PUB-124")
@virtual
async def test_after_a_conflict_the_decision_is_repeated_on_the_current_status() -> None:
    api = Api()
    stale = api.start(left=1)
    one, other = replica(api, lambda _: stale), replica(api, lambda _: stale, seed=1)
    assert await one.decide(KEY, take("p0")) == "given"
    # The other replica's copy still says that one is left.
    assert await other.decide(KEY, take("p1")) == "not now"
    assert await other.decide(KEY, take("p0")) == "given before"
    assert api.thing.status == ThingStatus(0, {"p0": 1})


@virtual
async def test_a_decision_without_a_write_is_verified_on_the_api_server() -> None:
    api = Api()
    api.start(left=0)
    old = msgspec.structs.replace(api.thing, status=ThingStatus(0, {"p0": 1}))
    statuses = replica(api, lambda _: old)
    # The cache still shows the grant of p0, which was revoked.
    assert await statuses.decide(KEY, take("p0")) == "not now"
    assert (api.count("PATCH"), api.count("GET")) == (0, 1)
    # "Not now" needs no such check, unless the decision says so.
    assert await statuses.decide(KEY, take("p1")) == "not now"
    assert api.count("GET") == 1
    assert await statuses.decide(KEY, take("p1", provisional=False)) == "not now"
    assert api.count("GET") == 2


@pytest.mark.behaviour("PUB-85")
@virtual
async def test_a_revoked_grant_is_charged_again_even_if_others_are_refused_with_it() -> None:
    api = Api()
    stale = msgspec.structs.replace(api.start(left=1), status=ThingStatus(0, {"p0": 1}))
    statuses = replica(api, lambda _: stale)
    # In the cache, p0 still has its grant and nothing is left for p1.
    answers = await asyncio.gather(*(statuses.decide(KEY, take(name)) for name in ("p0", "p1")))
    assert answers == ["given", "not now"]
    assert api.thing.status == ThingStatus(0, {"p0": 1})


@pytest.mark.behaviour("PUB-83")
@virtual
async def test_an_object_deleted_meanwhile_counts_as_deleted() -> None:
    api, statuses, stale = with_cache(2)
    assert await statuses.decide(KEY, take("p0")) == "given"
    del api.objects[PATH]
    assert await statuses.decide(KEY, take("p1")) == "gone"
    assert statuses.freshest(KEY) is stale  # what this process wrote no longer counts
    assert await replica(api).decide(KEY, take("p0")) == "gone"


@virtual
async def test_a_write_without_a_response_is_verified_and_not_repeated() -> None:
    lost = iter([True])
    api, statuses, _first = with_cache(2, lose=lambda _: next(lost, False))
    assert await statuses.decide(KEY, take("p0")) == "given before"
    assert api.thing.status == ThingStatus(1, {"p0": 1})


@pytest.mark.behaviour("PUB-82", "WS-37")
@pytest.mark.parametrize("code", [500, 503])
@virtual
async def test_failed_requests_including_reads_are_retried(code: int) -> None:
    left = iter(range(5))
    failing = json_response(code, status_body(code, "InternalError"))
    api, statuses, _first = with_cache(1, fail=lambda _: failing if next(left, None) is not None else None)
    assert await statuses.decide(KEY, take("p0")) == "given"
    assert (api.count("PATCH"), api.count("GET")) == (2, 5)


@pytest.mark.behaviour("PUB-59", "PUB-81")
@virtual
async def test_a_deleted_object_holds_no_caller_to_its_last_status() -> None:
    api = Api()
    shown: list[Thing | None] = [api.start(left=1)]
    statuses = replica(api, lambda _: shown[0])
    assert [await statuses.decide(KEY, take(f"p{i}")) for i in range(2)] == ["given", "not now"]
    del api.objects[PATH]
    shown[0] = None
    assert await statuses.decide(KEY, take("p1")) == "gone"
    assert statuses.freshest(KEY) is None


@pytest.mark.behaviour("PUB-81")
@virtual
async def test_a_failed_write_does_not_forget_earlier_writes_of_this_process() -> None:
    api, statuses, _stale = with_cache(2)
    assert await statuses.decide(KEY, take("p0")) == "given"
    written = api.thing
    api.fail = lambda r: json_response(409, status_body(409, "Conflict")) if r.method == "PATCH" else None
    with pytest.raises(Conflict):
        await statuses.decide(KEY, take("p1"))
    assert statuses.freshest(KEY) == written


@pytest.mark.behaviour("PUB-82")
@virtual
async def test_endless_conflicts_end_in_an_error() -> None:
    _api, statuses, _first = with_cache(
        1, fail=lambda r: json_response(409, status_body(409, "Conflict")) if r.method == "PATCH" else None
    )
    began = VirtualClock().monotonic()
    with pytest.raises(Conflict):
        await statuses.decide(KEY, take("p0"))
    assert DEADLINE <= VirtualClock().monotonic() - began < DEADLINE + 0.2
    assert statuses.counts.conflicts > 10


@virtual
async def test_one_failed_decision_fails_alone() -> None:
    _api, statuses, _first = with_cache(5)

    def broken(_: Thing | None) -> Ruling[Thing, str]:
        raise ValueError("no")

    given_, failed, also = await asyncio.gather(
        *(statuses.decide(KEY, one) for one in (take("p0"), broken, take("p1"))), return_exceptions=True
    )
    assert (given_, also) == ("given", "given")
    assert isinstance(failed, ValueError)


@virtual
async def test_a_canceled_caller_cancels_no_other() -> None:
    api, statuses, _first = with_cache(5, delay=0.01)
    asked = [asyncio.create_task(statuses.decide(KEY, take(f"p{i}"))) for i in range(4)]
    await asyncio.sleep(0)
    asked[0].cancel()  # before the write
    await asyncio.sleep(0.001)
    asked[1].cancel()  # during the write
    assert await asyncio.gather(*asked[2:]) == ["given", "given"]
    assert await statuses.decide(KEY, take("p9")) == "given"
    assert api.thing.status.taken.keys() == {"p1", "p2", "p3", "p9"}


@virtual
async def test_a_shutdown_lets_no_caller_wait_forever() -> None:
    _api, statuses, _first = with_cache(5, together=1, delay=1)
    asked = [asyncio.create_task(statuses.decide(KEY, take(f"p{i}"))) for i in range(3)]
    await asyncio.sleep(0.5)
    for task in asyncio.all_tasks():
        if task.get_name().startswith("status of"):
            task.cancel()
    await asyncio.wait(asked, timeout=60)
    assert all(task.cancelled() for task in asked)
    assert await statuses.decide(KEY, take("p0")) in ("given", "given before")


@virtual
async def test_objects_do_not_wait_for_each_other() -> None:
    api, statuses, _first = with_cache(5, delay=0.01)
    api.objects[PATH[:-1] + "b"] = {**api.objects[PATH], "metadata": {**api.objects[PATH]["metadata"], "name": "b"}}
    began = VirtualClock().monotonic()
    await asyncio.gather(statuses.decide(KEY, take("p")), statuses.decide(ObjectKey("shop", "b"), take("p")))
    assert VirtualClock().monotonic() - began < 0.02


@virtual
async def test_only_the_latest_objects_with_other_writers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may create and delete any number of objects."""
    monkeypatch.setattr(statuses_module, "MAX_REMEMBERED", 2)
    api = Api()
    copies = replica(api, lambda key: msgspec.convert(api.objects[PATH[:-1] + key.name], Thing))

    async def seconds(name: str, pod: str) -> float:
        began = VirtualClock().monotonic()
        assert await copies.decide(ObjectKey("shop", name), take(name + pod)) == "given"
        return VirtualClock().monotonic() - began

    conflicts: list[Response] = []
    api.fail = lambda request: conflicts.pop() if conflicts and request.method == "PATCH" else None
    for name in "abc":
        api._store(
            PATH[:-1] + name, {"metadata": {"name": name, "namespace": "shop", "uid": name}, "status": {"left": 9}}
        )
        conflicts.append(json_response(409, status_body(409, "Conflict")))
        await seconds(name, "p1")
    assert [await seconds(name, "p2") > 0 for name in "cba"] == [True, True, False]


@pytest.mark.behaviour("PUB-85")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), replicas=st.integers(1, 6), allowed=st.integers(0, 12), asking=st.integers(1, 40))
@virtual
async def test_grants_never_exceed_the_limit_with_any_caches(
    seed: int, replicas: int, allowed: int, asking: int
) -> None:
    """Covers stale caches, lost and slow responses, and names requested from several replicas."""
    rng = Random(seed)
    api = Api(lose=lambda _: rng.random() < 0.2)
    history = [api.start(allowed)]

    def cached(_: ObjectKey) -> Thing:
        history.append(api.thing)
        return rng.choice(history)

    given_: set[str] = set()
    all_of_them = [replica(api, cached, together=rng.choice([1, 3, 500]), seed=rng.random()) for _ in range(replicas)]

    async def ask(name: str) -> None:
        await asyncio.sleep(rng.random() * 0.05)
        api.delay = rng.random() * 0.004
        if await rng.choice(all_of_them).decide(KEY, take(name)) in ("given", "given before"):
            given_.add(name)

    names = [f"p{rng.randrange(asking)}" for _ in range(asking * 2)]
    async with asyncio.timeout(600):
        found = await asyncio.gather(*map(ask, names), return_exceptions=True)
    assert all(error is None or isinstance(error, Conflict | TransportError) for error in found)
    status = api.thing.status
    assert given_ <= status.taken.keys()
    assert len(status.taken) == allowed - status.left <= allowed


_json = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(st.sampled_from("abcd"), _json, max_size=4)


def present(value: Any) -> Any:
    return {k: present(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value


@given(_objects, _objects)
def test_the_difference_of_two_objects_merges_one_into_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    patch = merge_difference(old, new)
    assert present(merge_patch(old, patch)) == present(new)
    assert merge_difference(new, new) == {}
