"""Listening: sockets bound with clear errors, and uvicorn run inside our own loop and life cycle."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn

from app.manager.accepting import Acceptor
from app.manager.callers import KnownCallers
from app.manager.limits import Connections, Limits, within_descriptors
from app.manager.protocol import BoundedProtocol

BACKLOG: Final = 2048
#: Enough for a loop that is behind to read what its connections hold.
_ARRIVED_SECONDS: Final = 0.05


class StartError(Exception):
    """The process cannot start; the message is one line that names the flag or file and the way out."""


def bind(host: str, port: int, flag: str) -> socket.socket:
    """A listening socket on ``host`` (empty: all interfaces) and ``port`` (0: any). Raises StartError."""
    family = _family(host)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not host else 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise StartError(_cannot_bind(host, port, flag, error)) from None
    listener.setblocking(False)
    listener.set_inheritable(True)
    return listener


def bind_address(address: str, flag: str) -> socket.socket | None:
    """The same for an address flag, ``HOST:PORT`` or ``:PORT``; None where it turns the listener off."""
    if address in ("", "0"):
        return None
    host, _, port = address.rpartition(":")
    return bind(host.strip("[]"), int(port), flag)


def read_client_ca(path: str, flag: str) -> bytes:
    """The certificates in a file, or nothing for no file. Raises StartError."""
    if not path:
        return b""
    try:
        found = Path(path).read_bytes()
        ssl.create_default_context(cadata=found.decode("ascii"))
    except OSError as error:
        raise StartError(f"{flag}: {path}: {error.strerror}") from None
    except (ssl.SSLError, ValueError):
        raise StartError(f"{flag}: {path}: holds no certificates in PEM") from None
    return found


def client_names(client_ca: bytes, names: str) -> frozenset[str] | None:
    """Whose certificates are needed (see Limits): a list with commas, where there is an authority at all."""
    return frozenset(filter(None, map(str.strip, names.split(",")))) if client_ca else None


def _family(host: str) -> socket.AddressFamily:
    if not host:
        return socket.AF_INET6 if _has_ipv6() else socket.AF_INET
    with contextlib.suppress(ValueError):
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    return socket.AF_INET


def _has_ipv6() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _cannot_bind(host: str, port: int, flag: str, error: OSError | OverflowError) -> str:
    where = f"{host or 'all interfaces'}, port {port}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{flag}: {where} is in use by another program: choose another port or stop that program"
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        return f"{flag}: {where} may not be used: ports below 1024 need privileges"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{flag}: cannot listen on {where}: {reason}"


class Server(uvicorn.Server):
    """uvicorn without its own signal handling, its ten wake-ups a second and its trust in callers: ``stop`` ends it.

    ``port`` is what logs and metrics call it; ``callers`` are those whom strangers must not delay.
    """

    def __init__(
        self,
        app: Any,
        *,
        tls: ssl.SSLContext | None = None,
        grace_seconds: float = 10.0,
        limits: Limits | None = None,
        port: str = "webhook",
        callers: KnownCallers | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=max(1, int(grace_seconds)),
                backlog=BACKLOG,
            )
        )
        self.connections = Connections(port, within_descriptors(limits or Limits()), callers)
        self._tls = tls
        self._stopped = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on sockets that listen already."""
        loop = asyncio.get_running_loop()

        def connection() -> BoundedProtocol:
            return BoundedProtocol(self.config, self.server_state, loop, self.connections)

        self.servers = [Acceptor(listener, connection, self._tls, self.connections) for listener in sockets or ()]  # type: ignore[misc]
        self.started = True

    def stop(self) -> None:
        """Accept no more connections, finish what is in flight, return from ``serve``."""
        self.should_exit = True
        self._stopped.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has arrived: closing a connection with a request that nobody has read yet would lose it."""
        await asyncio.sleep(_ARRIVED_SECONDS)
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        """Wait until somebody stops us."""
        await self._stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's business."""
        yield
