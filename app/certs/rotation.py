"""Rotation: which step the certificates in a Secret need next. Pure.

A new CA is announced beside the old one, and only when every API server had time to learn it do listeners switch to a
certificate that it signed; only when every replica had time to switch is the old CA forgotten:

    current ──announce──▶ current + next ──switch──▶ current (was next) + previous CA ──finish──▶ current

All of that stands in the Secret, so any replica carries on where another was stopped, and the Secret's resourceVersion
lets one of several win. How long a step has lasted is measured by each replica for itself on its monotonic clock: no
two machines' clocks are ever compared. At every moment the bundle that is published trusts whatever is served.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from app.certs.issue import CertificateError, CertificateSet, condition_of, from_secret_data, issue

#: Secret key → field of the set that is announced.
_NEXT_KEYS: Final = {
    "next-ca-cert.pem": "ca_cert",
    "next-ca-key.pem": "ca_key",
    "next-tls.crt": "cert",
    "next-tls.key": "key",
}
_END: Final = b"-----END CERTIFICATE-----"
_PREVIOUS_KEY: Final = "previous-ca-cert.pem"
_RETIRED_KEY: Final = "retired-ca-fingerprints"
#: Everything of ours beside the set in force (MGR-32).
EXTRA_KEYS: Final = frozenset((*_NEXT_KEYS, _PREVIOUS_KEY, _RETIRED_KEY))
#: How many given-up CAs are kept in mind.
_RETIRED_KEPT: Final = 20


class Condition(NamedTuple):
    """What there is to say about a set."""

    #: Why it cannot be served, or an empty string.
    fault: str
    #: Whether it ends soon enough to be renewed.
    ending: bool = False
    #: Whether its CA may sign another certificate (MGR-34).
    can_sign: bool = False


Judge = Callable[[CertificateSet], Condition]


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a Secret holds: the set in force, and how far a change of the CA is."""

    current: CertificateSet
    next: CertificateSet | None = None
    #: CAs that are on their way out, PEM.
    previous_ca: bytes = b""
    #: Fingerprints of CAs that were given up: where they still stand in a bundle, they are taken out.
    retired: tuple[str, ...] = ()

    @property
    def bundle(self) -> bytes:
        """The CAs that clients must trust, PEM."""
        announced = self.next.ca_cert if self.next is not None else b""
        return joined(self.current.ca_cert, announced, self.previous_ca)

    @property
    def without_ca_keys(self) -> Rotation:
        """What listeners need, and nobody can sign with."""
        following = self.next.without_ca_key if self.next is not None else None
        return replace(self, current=self.current.without_ca_key, next=following)

    def secret_data(self) -> dict[str, str]:
        """The ``data`` of the Secret, base64."""
        data = self.current.secret_data()
        if self.next is not None:
            for name, field in _NEXT_KEYS.items():
                if content := getattr(self.next, field):
                    data[name] = base64.b64encode(content).decode()
        if self.previous_ca:
            data[_PREVIOUS_KEY] = base64.b64encode(self.previous_ca).decode()
        if self.retired:
            data[_RETIRED_KEY] = base64.b64encode("\n".join(self.retired).encode()).decode()
        return data

    def unknown(self, *pems: bytes) -> bytes:
        """Those of these CAs that are neither trusted nor given up."""
        trusted = blocks(self.bundle)
        return b"".join(
            block for block in blocks(*pems) if block not in trusted and _fingerprint(block) not in self.retired
        )


def joined(*pems: bytes) -> bytes:
    """The certificates of several PEM texts, each once."""
    return b"".join(blocks(*pems))


def blocks(*pems: bytes) -> list[bytes]:
    """The certificates of several PEM texts one by one, each once and written alike."""
    found = (block.lstrip() + _END + b"\n" for pem in pems for block in pem.split(_END)[:-1])
    return list(dict.fromkeys(found))


def _fingerprint(block: bytes) -> str:
    return hashlib.sha256(block).hexdigest()


def read_rotation(data: Mapping[str, str] | None) -> Rotation:
    """What is in a Secret's ``data``. Raises CertificateError where the set in force cannot be read.

    A half-written or damaged announcement counts as none: it will be made again.
    """
    current = from_secret_data(data)
    announced = {field: _decoded(data, name) for name, field in _NEXT_KEYS.items()}
    following = CertificateSet(**announced)
    complete = following.ca_cert and following.cert and following.key
    retired = _decoded(data, _RETIRED_KEY).decode("ascii", "replace").split()
    return Rotation(current, following if complete else None, _decoded(data, _PREVIOUS_KEY), tuple(retired))


def _decoded(data: Mapping[str, str] | None, name: str) -> bytes:
    try:
        return base64.b64decode((data or {}).get(name, ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


class Action(StrEnum):
    """What to do about the Secret."""

    KEEP = "keep"
    MAKE = "make a new certificate"
    RENEW = "renew the serving certificate under its CA"
    RESTORE = "put back what is served"
    RESTORE_AND_ROTATE = "put back what is served, and rotate to a new CA"
    ANNOUNCE = "announce a new CA"
    SWITCH = "serve the certificate of the announced CA"
    FINISH = "forget the previous CA"
    REMEMBER = "keep the CAs of what others may serve trusted"


class Step(NamedTuple):
    """The action and why it is needed."""

    action: Action
    why: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """What one replica sees."""

    #: Whether the Secret exists, and what it holds; None: nothing readable (``fault`` says why).
    exists: bool
    stored: Rotation | None
    #: What this replica took from the Secret last.
    held: Rotation | None
    #: Whether the Secret has been like this, and the bundle in place everywhere, for the whole time a step takes.
    settled: bool
    fault: str = ""
    #: The CAs that clients are told to trust now, PEM: other replicas may serve what they have signed.
    published: bytes = b""


def plan(observed: Observed, judge: Judge) -> Step:
    """The next step. Carrying it out, and planning again once it settled, leads to a sound set in force alone."""
    stored = observed.stored
    if stored is None or judge(stored.current).fault:
        return _without_current(observed, judge)
    current = judge(stored.current)
    announced = judge(stored.next) if stored.next is not None else None
    if announced is not None and (announced.fault or announced.ending):
        return Step(Action.ANNOUNCE, f"announced CA: {announced.fault or 'ends soon'}")
    if current.ending and current.can_sign:
        return Step(Action.RENEW, "serving certificate: ends soon")
    if current.ending and announced is None:
        return Step(Action.ANNOUNCE, "CA certificate: ends soon")
    if _unknown(observed, stored):
        # Somebody put other certificates there, or a replica made new ones while others served: what any of us may
        # serve this moment stays trusted until all had time to switch.
        return Step(Action.REMEMBER, "other CAs are in use")
    if announced is not None:
        return Step(Action.SWITCH if observed.settled else Action.KEEP)
    if stored.previous_ca and observed.settled:
        return Step(Action.FINISH)
    return Step(Action.KEEP)


def _unknown(observed: Observed, stored: Rotation) -> bytes:
    held = observed.held.current.ca_cert if observed.held is not None else b""
    return stored.unknown(held, observed.published)


def _without_current(observed: Observed, judge: Judge) -> Step:
    """There is no set in force that could be served."""
    stored, held = observed.stored, observed.held
    if stored is not None:
        why = judge(stored.current).fault
    else:
        why = observed.fault if observed.exists else "the Secret is missing"
    if held is not None and not judge(held.current).fault:
        # What all replicas serve is sound: nothing has to fail because the Secret was deleted or damaged.
        # A Secret that is gone is how a person asks for new keys.
        return Step(Action.RESTORE if observed.exists else Action.RESTORE_AND_ROTATE, why)
    if stored is not None and stored.next is not None and not judge(stored.next).fault:
        return Step(Action.SWITCH, why)
    return Step(Action.MAKE, why)


def carried_out(
    action: Action, observed: Observed, make: Callable[[CertificateSet | None], CertificateSet]
) -> Rotation:
    """What the Secret holds after a step. ``make`` issues a set, under the given set's CA or (None) under a new one.

    Whatever the step, no CA is dropped that others may rely on but one that was given up by name.
    """
    after = _after(action, observed, make)
    unknown = _unknown(observed, after)
    return replace(after, previous_ca=joined(after.previous_ca, unknown)) if unknown else after


def _after(action: Action, observed: Observed, make: Callable[[CertificateSet | None], CertificateSet]) -> Rotation:
    stored, held = observed.stored, observed.held
    if action is Action.RESTORE and held is not None:
        return held
    if action is Action.RESTORE_AND_ROTATE and held is not None:
        return replace(held, next=make(None))
    if action is Action.MAKE or stored is None:
        return Rotation(make(stored.current if stored is not None else None))
    if action is Action.RENEW:
        return replace(stored, current=make(stored.current))
    if action is Action.ANNOUNCE:
        return replace(stored, next=make(None))
    if action is Action.SWITCH and stored.next is not None:
        previous = joined(stored.current.ca_cert, stored.previous_ca)
        return replace(stored, current=stored.next, next=None, previous_ca=previous)
    if action is Action.FINISH:
        in_force = blocks(stored.current.ca_cert)
        given_up = [_fingerprint(block) for block in blocks(stored.previous_ca) if block not in in_force]
        return replace(stored, previous_ca=b"", retired=(*stored.retired, *given_up)[-_RETIRED_KEPT:])
    return stored


def judge_for(hosts: tuple[str, ...], now: datetime, renew_before: timedelta) -> Judge:
    """A judge of real certificates: do they belong together, are they for our names, how long do they last."""

    def judge(certificates: CertificateSet) -> Condition:
        try:
            return Condition(*condition_of(certificates, hosts, now, renew_before))
        except CertificateError as error:
            return Condition(str(error))

    return judge


def maker_for(hosts: tuple[str, ...], now: datetime) -> Callable[[CertificateSet | None], CertificateSet]:
    """Issues real certificates."""
    return lambda reuse: issue(hosts, now, reuse_ca_of=reuse)
