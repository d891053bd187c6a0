"""The plan of a rotation: in any order of actions of the replicas, the served certificates are trusted."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.certs.issue import CertificateSet, Condition, from_secret_data, issue
from app.certs.rotation import (
    Action,
    Observed,
    Rotation,
    StepTimer,
    carried_out,
    joined,
    judge_for,
    plan,
    read_rotation,
)
from tests.kit.virtualtime import EPOCH
from tests.nightly import examples

#: Duration of a rotation step, and the longest time between two checks of a replica.
STEP, LOOK = 6, 2


def ca(number: int) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n%d\n-----END CERTIFICATE-----\n" % number


def made(number: int) -> CertificateSet:
    return CertificateSet(ca_cert=ca(number), cert=b"leaf of %d" % number, key=b"key", ca_key=b"key")


GOOD, ENDING, ENDING_UNDER_GOOD_CA, BROKEN = (
    Condition(""),
    Condition("", ending=True),
    Condition("", ending=True, can_sign=True),
    Condition("broken"),
)
ONE, TWO, THREE = made(1), made(2), made(3)


def settled(stored: Rotation, **more: bytes) -> Observed:
    """Return what a replica sees when a step of the rotation has lasted long enough."""
    return Observed(True, stored, None, settled=True, **more)


def after(action: Action, stored: Rotation) -> Rotation:
    return carried_out(action, settled(stored), lambda _: ONE)


@pytest.mark.behaviour("MGR-34")
def test_an_authority_due_for_renewal_does_not_sign() -> None:
    # It expires in a year and a half, but must be valid for two more years.
    now = EPOCH + timedelta(days=3650 - 550)
    stored = Rotation(issue(("svc",), now, reuse_ca_of=issue(("svc",), EPOCH)))
    observed = settled(stored)
    assert plan(observed, judge_for(("svc",), now, timedelta(days=730))).action is Action.ANNOUNCE
    assert plan(observed, judge_for(("svc",), now, timedelta(days=180))).action is Action.KEEP


@pytest.mark.behaviour("MGR-33", "MGR-34")
@pytest.mark.parametrize(
    ("stored", "held", "settled", "conditions", "action"),
    [
        (None, None, False, {}, Action.MAKE),
        (None, Rotation(ONE), False, {}, Action.RESTORE_AND_ROTATE),
        (Rotation(ONE), None, False, {}, Action.KEEP),
        (Rotation(ONE), None, False, {1: BROKEN}, Action.MAKE),
        (Rotation(ONE), Rotation(TWO), False, {1: BROKEN}, Action.RESTORE),
        (Rotation(ONE), Rotation(TWO), False, {1: BROKEN, 2: BROKEN}, Action.MAKE),
        (Rotation(ONE, TWO), None, False, {1: BROKEN}, Action.SWITCH),
        (Rotation(ONE, TWO), None, False, {1: BROKEN, 2: BROKEN}, Action.MAKE),
        (Rotation(ONE), None, False, {1: ENDING_UNDER_GOOD_CA}, Action.RENEW),
        (Rotation(ONE), None, False, {1: ENDING}, Action.ANNOUNCE),
        (Rotation(ONE, TWO), None, False, {1: ENDING}, Action.KEEP),
        (Rotation(ONE, TWO), None, True, {1: ENDING}, Action.SWITCH),
        (Rotation(ONE, TWO), None, True, {1: ENDING, 2: ENDING}, Action.ANNOUNCE),
        (Rotation(ONE, TWO), None, True, {1: ENDING, 2: BROKEN}, Action.ANNOUNCE),
        (Rotation(TWO, None, ca(1)), None, False, {}, Action.KEEP),
        (Rotation(TWO, None, ca(1)), None, True, {}, Action.FINISH),
        (Rotation(TWO), Rotation(ONE), False, {}, Action.REMEMBER),
        (Rotation(TWO, None, ca(1)), Rotation(ONE), False, {}, Action.KEEP),
    ],
)
def test_each_state_of_a_rotation_has_its_next_step(
    stored: Rotation | None, held: Rotation | None, settled: bool, conditions: dict[int, Condition], action: Action
) -> None:
    def judge(certificates: CertificateSet) -> Condition:
        return next((found for number, found in conditions.items() if ca(number) == certificates.ca_cert), GOOD)

    observed = Observed(stored is not None, stored, held, settled)
    assert plan(observed, judge).action is action


def test_rotation_survives_a_round_trip_through_the_secret() -> None:
    one, two = issue(("a",), EPOCH), issue(("a",), EPOCH)
    for rotation in (Rotation(one), Rotation(one, two), Rotation(two, None, one.ca_cert)):
        data = rotation.secret_data()
        assert read_rotation(data) == rotation
        assert from_secret_data(data) == rotation.current  # older versions and OpenKruise read it this way


def test_a_retired_authority_leaves_bundles_and_the_others_stay_for_one_step() -> None:
    finished = after(Action.FINISH, Rotation(TWO, None, ca(1)))
    assert read_rotation(Rotation(issue(("a",), EPOCH), retired=finished.retired).secret_data()).retired
    assert plan(settled(finished, published=ca(1) + ca(2)), lambda _: GOOD).action is Action.KEEP
    seen = settled(finished, published=ca(3) + ca(2))
    assert plan(seen, lambda _: GOOD).action is Action.REMEMBER
    assert carried_out(Action.REMEMBER, seen, lambda _: THREE).bundle == ca(2) + ca(3)


def test_deleting_the_secret_requests_a_new_authority() -> None:
    deleted = Observed(False, None, Rotation(ONE), settled=False)
    assert carried_out(Action.RESTORE_AND_ROTATE, deleted, lambda _: TWO) == Rotation(ONE, TWO)


def test_an_early_switch_keeps_trusting_certificates_still_served() -> None:
    switched = after(Action.SWITCH, Rotation(TWO, THREE, previous_ca=ca(1), retired=("x",)))
    assert switched == Rotation(THREE, None, previous_ca=joined(ca(2), ca(1)), retired=("x",))


def test_finishing_retires_only_replaced_authorities() -> None:
    finished = after(Action.FINISH, Rotation(TWO, None, previous_ca=joined(ca(1), ca(2), ca(3)), retired=("x",)))
    one, two, three = (after(Action.FINISH, Rotation(TWO, None, ca(number))).retired for number in (1, 2, 3))
    assert finished.retired == ("x", *one, *three)
    assert (finished.current, finished.previous_ca, two) == (TWO, b"", ())


def test_only_the_latest_retired_authorities_are_kept() -> None:
    known = tuple(f"old-{number}" for number in range(20))
    finished = after(Action.FINISH, Rotation(TWO, None, previous_ca=ca(1), retired=known))
    assert len(finished.retired) == 20
    assert finished.retired[:19] == known[1:]


def test_an_incomplete_announcement_is_ignored() -> None:
    one, two = issue(("a",), EPOCH), issue(("a",), EPOCH)
    data = Rotation(one, two).secret_data()
    del data["next-tls.key"]
    assert read_rotation(data) == Rotation(one)
    assert read_rotation(data | {"next-tls.key": "%"}) == Rotation(one)


def test_a_slow_clock_accepts_a_future_certificate() -> None:
    later = issue(("a",), EPOCH + timedelta(days=2))
    judge = judge_for(("a",), EPOCH, timedelta(days=180))
    assert judge(later).fault == ""
    assert plan(Observed(True, Rotation(later), None, False), judge).action is Action.KEEP


def test_an_expired_certificate_is_an_error() -> None:
    judge = judge_for(("a",), EPOCH + timedelta(days=3651), timedelta(days=180))
    assert "expired at" in judge(issue(("a",), EPOCH)).fault


@dataclass
class World:
    """State shared by replicas: the Secret and a configuration with their versions, and the sets that expire soon."""

    secret: Rotation | str | None = None
    bundle: bytes = b""
    bundle_version: int = 0
    ending: set[bytes] = field(default_factory=set)
    now: int = 0
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def judge(self, certificates: CertificateSet) -> Condition:
        return Condition("", ending=certificates.ca_cert in self.ending)

    def make(self, _reuse: CertificateSet | None) -> CertificateSet:
        return made(next(self.numbers))


class Replica:
    """One replica: registration, and the Secret's reader and writer. Other replicas may run between its steps."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.held: Rotation | None = None
        self.timer = StepTimer(STEP)
        self.serves: CertificateSet | None = None
        self.looked = world.now
        self.steps = self.sync()

    def sync(self) -> Iterator[None]:
        world = self.world
        bundle, bundle_version = world.bundle, world.bundle_version
        yield
        self.read_secret(bundle)
        yield
        complete = bundle == self.held.bundle
        if not complete:
            if world.bundle_version != bundle_version:
                self.timer.record(None, world.now)  # conflict: read again
                return
            world.bundle, world.bundle_version = self.held.bundle, bundle_version + 1
        yield
        self.serves = self.held.current
        self.looked = world.now
        self.timer.record(self.held if complete else None, world.now)

    def read_secret(self, published: bytes) -> None:
        world = self.world
        stored = world.secret if isinstance(world.secret, Rotation) else None
        settled = not self.timer.seconds_left(stored, world.now)
        observed = Observed(world.secret is not None, stored, self.held, settled, "garbage", published)
        step = plan(observed, world.judge)
        self.held = carried_out(step.action, observed, world.make)
        if step.action is not Action.KEEP:
            world.secret = self.held

    def step(self) -> bool:
        try:
            next(self.steps)
        except StopIteration:
            self.steps = self.sync()
            return True
        return False

    def finish(self) -> None:
        while not self.step():
            pass


class RotationMachine(RuleBasedStateMachine):
    """Replicas start, check and crash midway, while certificates expire and Secrets are damaged."""

    @initialize()
    def start(self) -> None:
        self.world = World()
        self.replicas = [Replica(self.world), Replica(self.world)]

    @rule(which=st.integers(0, 2))
    def go_on(self, which: int) -> None:
        if self.replicas:
            self.replicas[which % len(self.replicas)].step()

    @rule(which=st.integers(0, 2))
    def look(self, which: int) -> None:
        if self.replicas:
            self.replicas[which % len(self.replicas)].finish()

    @rule()
    def join(self) -> None:
        if len(self.replicas) < 3:
            self.replicas.append(Replica(self.world))

    @rule(which=st.integers(0, 2))
    def crash(self, which: int) -> None:
        if self.replicas:
            self.replicas.pop(which % len(self.replicas))

    @rule()
    def time_passes(self) -> None:
        self.world.now += 1
        for replica in self.replicas:
            if replica.looked + LOOK <= self.world.now:
                replica.finish()
                replica.finish()
                replica.finish()

    @rule()
    def end_soon(self) -> None:
        if isinstance(self.world.secret, Rotation):
            self.world.ending.add(self.world.secret.current.ca_cert)

    @rule(to=st.sampled_from([None, "garbage"]))
    def damage(self, to: str | None) -> None:
        self.world.secret = to

    @invariant()
    def what_is_served_is_trusted(self) -> None:
        for replica in self.replicas:
            if replica.serves is not None:
                assert replica.serves.ca_cert in self.world.bundle

    def teardown(self) -> None:
        """Without disturbances, replicas converge to one valid certificate and one CA."""
        if not getattr(self, "replicas", None):
            return
        for _ in range(8 * STEP):
            self.time_passes()
            self.what_is_served_is_trusted()
        secret = self.world.secret
        assert isinstance(secret, Rotation)
        assert (secret.next, secret.previous_ca) == (None, b"")
        assert secret.current.ca_cert not in self.world.ending
        assert self.world.bundle == secret.bundle
        assert all(replica.serves == secret.current for replica in self.replicas)


RotationMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=60, deadline=None)
test_at_every_moment_what_any_replica_serves_is_trusted = RotationMachine.TestCase


def test_a_bundle_lists_each_authority_once() -> None:
    assert joined(ca(1), b"text" + ca(2) + ca(1)) == ca(1) + ca(2)
    assert replace(Rotation(ONE, TWO), previous_ca=ca(1)).bundle == ca(1) + ca(2)
