"""The debug pages, as used to find a stuck object."""

from app.kube.clock import Clock
from app.kube.controller import Controller
from app.kube.queue import RateLimits
from app.kube.resources import ObjectKey
from app.manager.health import PAGES, debug_page, queue_lines
from app.manager.shared_state import Details, Replica, State
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


def test_debug_pages_show_all_processes_of_a_replica() -> None:
    replica = Replica(("webhook-0", "webhook-1", "reconciler"))
    for name, lines in (("webhook-0", ["10:02 denied", "10:04 allowed"]), ("webhook-1", ["10:03 patched"])):
        replica.details[name].write(Details(debug={"decisions": lines}))
    assert debug_page("/debug/decisions", replica) == "10:02 denied\n10:03 patched\n10:04 allowed\n"
    assert debug_page("/debug/queues", replica) == "nothing yet\n"
    assert [line.split()[0] for line in debug_page("/debug/", replica).splitlines()] == [
        f"/debug/{one}" for one in PAGES
    ]
    assert debug_page("/debug/other", replica) is None
    replica.states["webhook-0"].write(State(pid=7, missing={"caches": "not filled yet"}))
    replica.states["reconciler"].write(State(pid=8, leading=True))
    first, _, last = debug_page("/debug/processes", replica).splitlines()
    assert first.startswith("webhook-0    process 7, caches: not filled yet, last heartbeat ")
    assert last.startswith("reconciler   process 8, ready, last heartbeat ")
    assert last.endswith(", leader")
