"""Measures the cost of admitting one large Pod, in interpreter steps or in time.

``python -m tests.fuzz.cost [--megabytes 3] [--limit 300]`` measures every shape of ``large_pods`` and exits 1 if one
takes more processor time than the limit, in milliseconds. Tests count steps, which do not depend on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from app.admission.review import Refusal, answer, read_review, refusal_answer
from app.kube.admission import Handler
from app.manager.process import GC_THRESHOLD
from tests.fuzz import objects
from tests.fuzz.service import decided, standalone_service


async def reply(handler: Handler, body: bytes) -> bytes:
    """Return the encoded answer to an encoded review, as the service does."""
    review = read_review(body)
    if isinstance(review, Refusal):
        return refusal_answer(review)[1]
    return answer(review.uid, await decided(handler, review))


async def pod_handler() -> Handler:
    standalone = await standalone_service(objects.sidecar_set())
    return next(iter(standalone.registry.routes["/mutate-pod"].handlers.values()))


def bodies(size: int) -> Iterator[tuple[str, bytes]]:
    target = objects.TARGETS[0]
    for made in objects.large_pods(size):
        yield made.what, objects.encode(objects.review(target, made.object))


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """Count the lines that run, including loops within a line, and the calls of built-in functions."""
    count = [0]

    def line(frame: FrameType, event: str, argument: object) -> Any:
        count[0] += 1
        return line

    def call(frame: FrameType, event: str, argument: object) -> None:
        if event == "c_call":
            count[0] += 1

    before, collects = (sys.gettrace(), sys.getprofile()), gc.isenabled()
    gc.disable()  # it would run finalizers of other objects
    sys.settrace(line)
    sys.setprofile(call)
    try:
        yield count
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
        if collects:
            gc.enable()


def main() -> int:
    return asyncio.run(_main())


async def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=3)
    parser.add_argument("--limit", type=float, default=300, help="milliseconds")
    options = parser.parse_args()
    handler = await pod_handler()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)  # as in the serving processes
    slow = 0
    for what, body in bodies(int(options.megabytes * 1_000_000)):
        gc.collect()
        started = time.process_time()
        try:
            given = await reply(handler, body)
        except Exception as error:  # noqa: BLE001 - measure the others too
            given = repr(error).encode()[:300]
            print(given)
        taken = (time.process_time() - started) * 1_000
        slow += taken > options.limit
        mark = "!" if taken > options.limit else " "
        print(f"{mark} {taken:9.1f} ms  {len(body):>9,} bytes in {len(given):>9,} out  {what}", flush=True)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
