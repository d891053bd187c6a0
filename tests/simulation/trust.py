"""Trust: every API server must trust the served certificates, even if it learns of new CA bundles seconds later."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cryptography import x509

Json = Mapping[str, Any]

#: Delay of an API server's watch of webhook configurations.
BEHIND_SECONDS = 15.0


class Trust:
    """Tracks the bundles that an API server may hold."""

    def __init__(self) -> None:
        #: Webhook → its bundles, each with the time of its replacement (None: current).
        self._bundles: dict[str, list[tuple[bytes, float | None]]] = {}

    def wrote(self, at: float, before: Json | None, after: Json | None) -> None:
        new = _bundles(after)
        for name in {**_bundles(before), **new}:
            known = self._bundles.setdefault(name, [])
            if known and known[-1] == (new.get(name), None):
                continue
            if known and known[-1][1] is None:
                known[-1] = (known[-1][0], at)
            if name in new:
                known.append((new[name], None))
            self._bundles[name] = [one for one in known if one[1] is None or at - one[1] <= BEHIND_SECONDS]

    def broken_by(self, at: float, served: Mapping[str, bytes], given: bytes = b"") -> Iterator[str]:
        """Yield the bundles that do not trust a served certificate; ``served``: replica → certificate in PEM.

        ``given``: CAs that a user put into the Secret, which apply at once.
        """
        for name, bundles in self._bundles.items():
            for bundle, until in bundles:
                if until is not None and at - until > BEHIND_SECONDS:
                    continue
                for replica, certificate in served.items():
                    if until is not None and _trusts(given, certificate):
                        continue
                    if not _trusts(bundle, certificate):
                        when = "is" if until is None else f"was until {at - until:.1f} s ago"
                        yield f"the bundle that {when} the one of {name} does not trust what {replica} serves"


def _bundles(configuration: Json | None) -> dict[str, bytes]:
    entries = (configuration or {}).get("webhooks") or ()
    return {entry["name"]: base64.b64decode(entry["clientConfig"].get("caBundle") or "") for entry in entries}


@cache
def _trusts(bundle: bytes, leaf: bytes) -> bool:
    certificate = x509.load_pem_x509_certificate(leaf)
    for authority in x509.load_pem_x509_certificates(bundle) if bundle else ():
        try:
            certificate.verify_directly_issued_by(authority)
        except Exception:  # noqa: BLE001 - not issued by this one, for whatever reason
            continue
        return True
    return False
