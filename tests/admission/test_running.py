"""Large reviews are decided outside the event loop that answers Pod reviews."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import httpx
import orjson
import pytest

from app.admission import running
from app.admission.metrics import AdmissionMetrics
from app.admission.registry import build_registry
from app.admission.requests import LARGE_BYTES, LARGE_ITEMS
from app.admission.running import LargeReviews, in_time
from app.admission.server import create_app
from app.api.conversion import convert
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.framework.live import LARGE_BYTES as LARGE_OTHERS
from app.framework.live import LiveObjects
from app.framework.watched import Stores, Watched
from app.kube.admission import (
    STRANGER,
    Allowed,
    Decide,
    Decision,
    Denied,
    GroupVersionKind,
    GroupVersionResource,
    Handler,
    Operation,
    Review,
    Rule,
    Webhook,
)
from app.kube.client import Client
from app.kube.client import Listing as Listed
from app.kube.clock import SystemClock
from tests.admission.requests import review_about

Json = dict[str, Any]
JSON = {"Content-Type": "application/json"}
LARGE = "x" * LARGE_BYTES
SET = GroupVersionKind("apps.kruise.io", "v1beta1", "CloneSet")


def handler(
    path: str, plural: str, group: str, version: str, decide: Decide, is_slow: Any = None, seconds: int = 10
) -> Handler:
    rules = (Rule((Operation.CREATE,), (group,), (version,), (plural,)),)
    webhook = Webhook(f"{plural}.test", path, False, rules, "test", timeout_seconds=seconds)
    return Handler(webhook, decide, is_slow or (lambda _: False))


def service(of_sets: Decide, of_pods: Decide, is_slow: Any = None, seconds: int = 10) -> httpx.AsyncClient:
    handlers = [
        handler("/sets", "clonesets", "apps.kruise.io", "v1beta1", of_sets, is_slow, seconds),
        handler("/pods", "pods", "", "v1", of_pods),
    ]
    app = create_app(build_registry(handlers, lambda _: True), convert, AdmissionMetrics())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://service")


async def post(http: httpx.AsyncClient, path: str, text: str = "x") -> Json:
    kind, plural = (SET, "clonesets") if path == "/sets" else (GroupVersionKind("", "v1", "Pod"), "pods")
    metadata = {"name": "x", "annotations": {"text": text}}
    obj = {"apiVersion": f"{kind.group}/{kind.version}".strip("/"), "kind": kind.kind, "metadata": metadata}
    body = orjson.dumps(review_about(kind, plural, "CREATE", obj))
    found: Json = (await http.post(path, content=body, headers=JSON)).json()["response"]
    return found


@pytest.mark.behaviour("MGR-149")
@pytest.mark.parametrize("later", [False, True], ids=["at once", "as a coroutine"])
async def test_large_reviews_do_not_delay_pods(later: bool) -> None:
    """The large review finishes only after that of the Pod, so handling it in the event loop would deadlock."""
    asked, judged = threading.Event(), threading.Event()

    def blocks(_: Review) -> Decision:
        assert asyncio.get_running_loop().time() > 0  # clocks need the running loop
        asked.set()
        assert judged.wait(60)
        return Allowed(("judged",))

    async def blocks_later(review: Review) -> Decision:
        await asyncio.sleep(0)
        return blocks(review)

    def of_pods(_: Review) -> Decision:
        judged.set()
        return Allowed()

    async with service(blocks_later if later else blocks, of_pods) as http:
        large = asyncio.ensure_future(post(http, "/sets", LARGE))
        await asyncio.to_thread(asked.wait, 60)
        assert (await post(http, "/pods"))["allowed"]
        assert (await large)["warnings"] == ["judged"]


@pytest.mark.behaviour("MGR-149")
@pytest.mark.parametrize(("text", "large"), [("x", False), (LARGE, True), ("," * LARGE_ITEMS, True)])
async def test_large_reviews_get_the_same_answers(text: str, large: bool) -> None:
    threads: list[threading.Thread] = []

    def fails(_: Review) -> Decision:
        threads.append(threading.current_thread())
        raise ValueError("a mistake")

    def deep(_: Review) -> Decision:
        raise RecursionError

    async with service(fails, fails) as http:
        assert (await post(http, "/sets", text))["status"]["code"] == 500
        await post(http, "/pods", LARGE)
        assert [one is threading.main_thread() for one in threads] == [not large, True]
    async with service(deep, fails) as http:
        assert (await post(http, "/sets", text))["status"]["code"] == 400
    async with service(lambda _: Denied("no", code=422), fails) as http:
        assert (await post(http, "/sets", text))["status"]["message"] == "no"


@pytest.mark.behaviour("MGR-149")
async def test_a_small_review_is_slow_if_the_objects_it_is_compared_with_are_large() -> None:
    """Reading and comparing twenty budgets of 1 MB took more than a second, regardless of the size of the new one."""
    text = "x"
    threads: list[threading.Thread] = []

    class Listing(Client):
        async def list(self, _resource: Any, _namespace: str = "", *, decode: Any = None, **_: Any) -> Any:
            metadata = {"name": "one", "annotations": {"text": text}}
            spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"a": "b"}}}
            return Listed([decode(orjson.dumps({"metadata": metadata, "spec": spec}))], "1")

    others = LiveObjects(Listing(cast("Any", None), SystemClock()), Stores(()))
    budgets = Watched.kind(POD_UNAVAILABLE_BUDGET, PodUnavailableBudget)

    async def compares(review: Review) -> Decision:
        threads.append(threading.current_thread())
        return Allowed((str(len(await others.list(budgets, review.namespace))),))

    async with service(compares, compares, is_slow=others.are_large) as http:
        assert (await post(http, "/sets"))["warnings"] == ["1"]
        text = "x" * LARGE_OTHERS
        await post(http, "/sets")
        text = "x"
        await post(http, "/sets")
        await post(http, "/sets")
    assert [one is threading.main_thread() for one in threads] == [True, True, False, True]


@pytest.mark.behaviour("MGR-149")
@pytest.mark.parametrize("text", ["x", LARGE])
async def test_large_reviews_are_also_converted_in_the_thread(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Converting and checking an object of 1.3 MB takes longer than deciding about it."""
    in_loop: list[bool] = []

    def noting(read: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            in_loop.append(threading.current_thread() is threading.main_thread())
            return read(*args)

        return noted

    for name in ("prepared", "stored_form"):
        monkeypatch.setattr(running, name, noting(getattr(running, name)))
    async with service(lambda _: Allowed(), lambda _: Allowed()) as http:
        assert (await post(http, "/sets", text))["allowed"]
    assert in_loop == [text != LARGE] * 2

    def fails(*_: Any) -> Any:
        raise ValueError("a mistake")

    async with service(lambda _: Allowed(), lambda _: Allowed(), seconds=0) as http:
        assert (await post(http, "/sets", LARGE))["status"]["code"] == 503
    monkeypatch.setattr(running, "prepared", fails)
    async with service(lambda _: Allowed(), lambda _: Allowed()) as http:
        assert (await post(http, "/sets", text))["status"]["code"] == 500


def of(namespace: str) -> Review:
    resource = GroupVersionResource(SET.group, SET.version, "clonesets")
    return Review(uid="u", operation=Operation.CREATE, kind=SET, resource=resource, namespace=namespace)


@pytest.mark.behaviour("MGR-149")
async def test_namespaces_take_turns() -> None:
    """A namespace that writes many large objects delays only itself. So does a stranger, across all namespaces."""
    aside, order, may = LargeReviews(), [], threading.Event()

    def judge(review: Review) -> Decision:
        assert may.wait(60)
        order.append(review.namespace)
        return Allowed()

    try:
        asked = [asyncio.ensure_future(aside.decide(judge, of(namespace), 60)) for namespace in ("a",) * 5]
        await asyncio.sleep(0)
        token = STRANGER.set("10.0.0.9")
        asked += [asyncio.ensure_future(aside.decide(judge, of(namespace), 60)) for namespace in ("x", "y", "z")]
        STRANGER.reset(token)
        asked.append(asyncio.ensure_future(aside.decide(judge, of("b"), 60)))
        await asyncio.sleep(0)
        may.set()
        assert await asyncio.gather(*asked) == [Allowed()] * 9
        assert order == ["a", "a", "x", "b", "y", "a", "z", "a", "a"]
    finally:
        may.set()
        aside.close()


@pytest.mark.behaviour("MGR-149")
async def test_a_canceled_review_does_not_block_the_next() -> None:
    aside, may = LargeReviews(), threading.Event()

    def judge(_: Review) -> Decision:
        assert may.wait(60)
        return Allowed()

    async def then_cancel() -> Decision:
        decision = await aside.decide(judge, of("a"), 60)
        canceled.cancel()  # it has got its turn but has not run yet
        return decision

    try:
        first = asyncio.ensure_future(then_cancel())
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await aside.decide(judge, of("a"), 0)
        canceled = asyncio.ensure_future(aside.decide(judge, of("b"), 60))
        last = asyncio.ensure_future(aside.decide(judge, of("c"), 10))
        await asyncio.sleep(0)
        may.set()
        assert await asyncio.gather(first, last) == [Allowed()] * 2
        assert await aside.decide(judge, of("a"), 60) == Allowed()
    finally:
        may.set()
        aside.close()


# ---- time limits


async def at_once() -> int:
    return 7


async def later() -> int:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    async with asyncio.timeout(120):
        return await asyncio.to_thread(lambda: 7)


async def fails() -> int:
    raise ValueError("no")


async def fails_later() -> int:
    await asyncio.sleep(0)
    raise ValueError("no")


async def gives_up() -> int:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        raise
    return 0


@pytest.mark.parametrize("decide", [at_once, later])
async def test_a_decision_is_returned(decide: Any) -> None:
    assert await in_time(decide(), 20) == 7
    assert await in_time(asyncio.create_task(decide()), 20) == 7


@pytest.mark.parametrize("decide", [fails, fails_later])
async def test_a_failure_affects_only_its_own_request(decide: Any) -> None:
    with pytest.raises(ValueError, match="no"):
        await in_time(decide(), 20)


async def test_a_decision_that_takes_too_long_is_abandoned() -> None:
    with pytest.raises(TimeoutError):
        await in_time(gives_up(), 0.01)


async def test_a_decision_is_canceled_with_its_caller() -> None:
    task = asyncio.create_task(in_time(gives_up(), 20))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
