"""Rotation: pure functions that decide which step the certificates in a Secret need next.

A new CA is announced next to the old one. Listeners switch to a certificate signed by the new CA only after every
API server has had time to load that CA, and the old CA is dropped only after every replica has had time to switch:

    current ──announce──▶ current + next ──switch──▶ current (was next) + previous CA ──finish──▶ current

The state is kept in the Secret, so any replica can resume a rotation, and the Secret's resourceVersion decides between
concurrent writers. Each replica measures the duration of a step on its own monotonic clock; clocks of different
machines are never compared. The published bundle always trusts every certificate in use. Lifetimes are set in
app/certs/issue.py.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from app.certs.issue import CertificateError, CertificateSet, Condition, condition_of, expiry, from_secret_data

#: Secret key → field of the announced set.
_NEXT_KEYS: Final = {
    "next-ca-cert.pem": "ca_cert",
    "next-ca-key.pem": "ca_key",
    "next-tls.crt": "cert",
    "next-tls.key": "key",
}
#: How long before expiry a certificate is renewed, unless ``CERTS_RENEW_BEFORE`` is set.
DEFAULT_RENEW_BEFORE: Final = timedelta(days=180)
_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"
_PREVIOUS_KEY: Final = "previous-ca-cert.pem"
_RETIRED_KEY: Final = "retired-ca-fingerprints"
#: All keys that we use in the Secret, except those of the current set. [MGR-32]
EXTRA_KEYS: Final = frozenset((*_NEXT_KEYS, _PREVIOUS_KEY, _RETIRED_KEY))
#: Maximum number of retired CAs to remember.
_RETIRED_KEPT: Final = 20


Judge = Callable[[CertificateSet], Condition]


@dataclass(frozen=True, slots=True)
class Rotation:
    """Contents of the Secret: the current set and the progress of a CA change."""

    current: CertificateSet
    next: CertificateSet | None = None
    #: CAs that are being phased out, in PEM.
    previous_ca: bytes = b""
    #: Fingerprints of retired CAs, which are removed from any bundle that still contains them.
    retired: tuple[str, ...] = ()

    @property
    def bundle(self) -> bytes:
        """The CAs that clients must trust, in PEM."""
        announced = self.next.ca_cert if self.next is not None else b""
        return joined(self.current.ca_cert, announced, self.previous_ca)

    @property
    def without_ca_keys(self) -> Rotation:
        """Return the rotation without CA keys, which a listener does not need."""
        following = self.next.without_ca_key if self.next is not None else None
        return replace(self, current=self.current.without_ca_key, next=following)

    def secret_data(self) -> dict[str, str]:
        """Return the ``data`` of the Secret, base64-encoded."""
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
        """Return the given CAs that are neither trusted nor retired."""
        trusted = blocks(self.bundle)
        return b"".join(
            block for block in blocks(*pems) if block not in trusted and _fingerprint(block) not in self.retired
        )


def joined(*pems: bytes) -> bytes:
    """Concatenate PEM certificates without duplicates."""
    return b"".join(blocks(*pems))


def blocks(*pems: bytes) -> list[bytes]:
    """Split PEM data into individual certificates, dropping duplicates and text between them."""
    found = (_BEGIN + block.rpartition(_BEGIN)[2] + _END + b"\n" for pem in pems for block in pem.split(_END)[:-1])
    return list(dict.fromkeys(found))


def unexpired(bundle: bytes, now: datetime) -> list[bytes]:
    """Return the certificates of a PEM bundle that can be read and have not expired."""
    good = []
    for block in blocks(bundle):
        with contextlib.suppress(CertificateError):
            if expiry(block) > now:
                good.append(block)
    return good


def _fingerprint(block: bytes) -> str:
    return hashlib.sha256(block).hexdigest()


def read_rotation(data: Mapping[str, str] | None) -> Rotation:
    """Read a Secret's ``data``. Raises CertificateError if the current set cannot be read.

    An incomplete or damaged announced set is ignored, and a new one is issued.
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
    """Change to make to the Secret."""

    KEEP = "keep"
    MAKE = "issue a new certificate"
    RENEW = "renew the serving certificate under its CA"
    RESTORE = "restore the certificate in use"
    RESTORE_AND_ROTATE = "restore the certificate in use, and rotate to a new CA"
    ANNOUNCE = "announce a new CA"
    SWITCH = "serve the certificate of the announced CA"
    FINISH = "drop the previous CA"
    REMEMBER = "keep trusting the CAs that other replicas may use"


class Step(NamedTuple):
    """The action and why it is needed."""

    action: Action
    why: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """State observed by one replica."""

    #: Whether the Secret exists, and its contents (None if unreadable; ``fault`` says why).
    exists: bool
    stored: Rotation | None
    #: The set this replica last read from the Secret.
    held: Rotation | None
    #: Whether the Secret and all published bundles have been in this state for the full duration of a step.
    settled: bool
    fault: str = ""
    #: The CAs that clients currently trust, in PEM. Other replicas may serve certificates signed by them.
    published: bytes = b""


def plan(observed: Observed, judge: Judge) -> Step:
    """Return the next step. Planning and executing repeatedly converges on a single valid set."""
    stored = observed.stored
    if stored is None or judge(stored.current).fault:
        return _without_current(observed, judge)
    current = judge(stored.current)
    announced = judge(stored.next) if stored.next is not None else None
    if announced is not None and (announced.fault or announced.ending):
        return Step(Action.ANNOUNCE, f"announced CA: {announced.fault or 'expires soon'}")
    if current.ending and current.can_sign:
        return Step(Action.RENEW, "serving certificate: expires soon")
    if current.ending and announced is None:
        return Step(Action.ANNOUNCE, "CA certificate: expires soon")
    if _unknown(observed, stored):
        # The Secret was replaced externally, or a replica issued new certificates while others kept serving. CAs in
        # use stay trusted until every replica has had time to switch.
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
    """Return the next step when no current set can be served."""
    stored, held = observed.stored, observed.held
    if stored is not None:
        why = judge(stored.current).fault
    else:
        why = observed.fault if observed.exists else "the Secret is missing"
    if held is not None and not judge(held.current).fault:
        # The set that replicas serve is sound, so a deleted or damaged Secret does not interrupt service. Deleting the
        # Secret is how a user requests new keys.
        return Step(Action.RESTORE if observed.exists else Action.RESTORE_AND_ROTATE, why)
    if stored is not None and stored.next is not None and not judge(stored.next).fault:
        return Step(Action.SWITCH, why)
    return Step(Action.MAKE, why)


def carried_out(
    action: Action, observed: Observed, make: Callable[[CertificateSet | None], CertificateSet]
) -> Rotation:
    """Return the contents of the Secret after a step. ``make`` issues a set signed by the given set's CA, or by a new
    CA if given None.

    No step drops a CA that others may rely on, unless it is retired.
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


class StepTimer:
    """Measures how long a rotation has been in the Secret, unchanged and with its bundle published everywhere."""

    def __init__(self, seconds: float) -> None:
        """``seconds`` is the duration of a step."""
        self._seconds = seconds
        self._in_place: Rotation | None = None
        self._since = 0.0

    def record(self, in_place: Rotation | None, now: float) -> None:
        """Record the Secret's rotation at monotonic time ``now``; None if its bundle is not published everywhere."""
        if in_place != self._in_place:
            self._in_place, self._since = in_place, now

    def seconds_left(self, rotation: Rotation | None, now: float) -> float:
        """Return the seconds until the rotation has been in the Secret, and published, for a whole step."""
        return max(0.0, self._since + self._seconds - now) if rotation == self._in_place else self._seconds


def judge_for(hosts: tuple[str, ...], now: datetime, renew_before: timedelta) -> Judge:
    """Return a function that checks whether certificates match each other and our host names, and when they expire."""
    return lambda certificates: condition_of(certificates, hosts, now, renew_before)
