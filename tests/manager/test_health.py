"""The debug pages, as used to find a stuck object."""

from app.kube.clock import Clock
from app.kube.controller import Controller
from app.kube.queue import RateLimits
from app.kube.resources import ObjectKey
from app.manager.health import queue_lines
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import virtual


async def nothing(key: ObjectKey) -> None:
    pass


@virtual
async def test_a_failing_key_is_shown_while_it_backs_off() -> None:
    clock: Clock = VirtualClock()
    controller = Controller("sets", clock, [], nothing, limits=RateLimits(base_delay=8.0))
    key, other = ObjectKey("shop", "web"), ObjectKey("shop", "api")
    controller.queue.add_rate_limited(other)
    for _ in range(3):
        controller.queue.add(key)
        assert await controller.queue.get() == key
        controller.queue.done(key)
        controller.queue.add_rate_limited(key)
    assert queue_lines([controller], clock.monotonic()) == [
        "sets: 0 waiting, 0 of 3 workers busy",
        "  shop/web: failed 3 times in a row, next attempt in 8.0 s",
        "  shop/api: failed 1 times in a row, next attempt in 8.0 s",
    ]
    controller.queue.add(key)
    assert await controller.queue.get() == key
    assert queue_lines([controller], clock.monotonic())[1:] == [
        "  shop/web: in progress for 0.0 s, after 3 failures in a row",
        "  shop/api: failed 1 times in a row, next attempt in 8.0 s",
    ]
    controller.queue.forget(key)
    assert len(queue_lines([controller], clock.monotonic())) == 3
    controller.queue.shut_down()
