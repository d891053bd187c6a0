"""Who sits on this machine, or comes through ``kubectl port-forward``. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final

from starlette.types import Scope

_LOCAL_NAMES: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))


def is_local(scope: Scope) -> bool:
    """Whether the request comes from this machine, and means it: a page elsewhere cannot make a browser send it."""
    client = scope.get("client")
    if client is None:
        return False
    address = ipaddress.ip_address(client[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "localhost")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return (mapped or address).is_loopback and name in _LOCAL_NAMES
