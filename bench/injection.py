"""Measure the review of a new Pod in this process, from request bytes to response bytes:
``python -m bench.injection [--rounds 7]``.

Without a server and TLS, this measures the review envelope, the mutators and the patch; "decide" measures the mutators
alone. Each round runs all cases, and the medians are printed. The Pod has one container; the SidecarSet has two
containers, a volume and environment variables.
"""

from __future__ import annotations

import argparse
import random
import time
import timeit
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from app.admission.pod_webhooks import pod_handler
from app.admission.review import Refusal, answer, read_review
from app.features.launchpriority.pod_admission import LaunchPriorityStep
from app.features.podreadiness.feature import ReadinessGateStep
from app.features.sidecarset.defaults import with_defaults
from app.features.sidecarset.history import RECORDED_SET
from app.features.sidecarset.injection.selection import SidecarSetIndex
from app.features.sidecarset.pod_admission import InjectionLookups, SidecarSetStep
from app.kube.admission import Patched, Review
from app.kube.clock import SystemClock
from app.kube.objects import Namespace, ObjectMeta
from app.kube.store import Store
from bench.admission import review, sidecarset

REVIEWS_PER_ROUND = 5_000


def lookups() -> InjectionLookups:
    """Return the lookups of a cluster with the Pod's namespace and without revisions."""
    namespaces: Store[Namespace] = Store()
    namespaces.put(Namespace(ObjectMeta(name="shop")))
    return InjectionLookups(namespaces, Store({RECORDED_SET: lambda _: ()}), None, "kruise-system")


@dataclass(frozen=True)
class Case:
    """A case: its name in the table, and the function that decides a review."""

    name: str
    decide: Callable[[Review], Any]


def case(name: str, sets: Iterable[dict[str, Any]]) -> Case:
    """Return a case with these SidecarSets."""
    index = SidecarSetIndex()
    for obj in sets:
        index.update(with_defaults(obj))
    steps = (
        ReadinessGateStep(),
        SidecarSetStep(index, lookups(), SystemClock(), random.random),
        LaunchPriorityStep(random.Random()),
    )
    return Case(name, pod_handler(steps).decide)


def sharing() -> dict[str, Any]:
    """Return a SidecarSet that must be rendered for each Pod, due to shared mounts and transferred env variables."""
    obj: dict[str, Any] = sidecarset("s", "web")
    for container in obj["spec"]["containers"]:
        container["shareVolumePolicy"] = {"type": "enabled"}
        container["transferEnv"] = [{"sourceContainerName": "main", "envName": "A"}]
    return obj


def parsed_review(body: bytes) -> Review:
    found = read_review(body)
    assert not isinstance(found, Refusal), found.message
    return found


def answered(decide: Callable[[Review], Any], body: bytes) -> object:
    """Return the response to a review given as bytes."""
    parsed = parsed_review(body)
    return answer(parsed.uid, decide(parsed))


def microseconds(call: Callable[[], object]) -> float:
    """Return the processor time of one call, which excludes other processes."""
    return timeit.timeit(call, timer=time.process_time, number=REVIEWS_PER_ROUND) / REVIEWS_PER_ROUND * 1e6


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    others = [sidecarset(f"other-{number}", f"other-{number}") for number in range(999)]
    cases = (
        case("no SidecarSet", []),
        case("1,000 sets, none matches", [*others, sidecarset("other-999", "other-999")]),
        case("1 set, it matches", [sidecarset("s", "web")]),
        case("1,000 sets, one matches", [*others, sidecarset("s", "web")]),
        case("1 set, shared mounts and transferred env", [sharing()]),
    )
    body = review()
    parsed = parsed_review(body)
    whole: dict[str, list[float]] = {}
    decisions: dict[str, list[float]] = {}
    for _ in range(rounds):
        for one in cases:
            decisions.setdefault(one.name, []).append(microseconds(partial(one.decide, parsed)))
            whole.setdefault(one.name, []).append(microseconds(partial(answered, one.decide, body)))
    print(f"medians of {rounds} rounds of {REVIEWS_PER_ROUND:,} reviews of {len(body)} bytes, in µs per review\n")
    print("| what | operations | decide | bytes to bytes |\n|---|---|---|---|")
    for one in cases:
        decision = one.decide(parsed)
        operations = len(decision.operations) if isinstance(decision, Patched) else 0
        print(f"| {one.name} | {operations} | {median(decisions[one.name]):.1f} | {median(whole[one.name]):.1f} |")


if __name__ == "__main__":
    main()
