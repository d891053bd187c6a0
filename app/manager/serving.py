"""Serving HTTPS: sockets, accepting connections, and the server itself."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn

from app.manager.callers import KnownCallers, plain_address
from app.manager.limits import Connections, Limits, within_descriptors
from app.manager.protocol import BoundedProtocol

# Accepting connections: never more than the port's limit, handshakes included, and on through running out of
# descriptors, where an event loop's own server would give up its listener.

logger = logging.getLogger(__name__)

#: How many connections are accepted before others have their turn.
AT_ONCE: Final = 32
#: How long nothing is accepted where the system has nothing left to accept with.
BACK_OFF_SECONDS: Final = 0.2
HANDSHAKE_SECONDS: Final = 10.0
SHUTDOWN_SECONDS: Final = 2.0
#: What a TLS handshake takes of a processor, most of it for the signature.
HANDSHAKE_COST: Final = 0.001
#: The system's, not the caller's: what is missing now may be there soon.
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts on one listening socket until closed. Other processes may accept on it too."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        connections: Connections,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._protocol = protocol
        self._tls = tls
        self._connections = connections
        #: Connections on their way through the handshake, the oldest first, and whether they are strangers'.
        self._opening: dict[asyncio.Task[None], bool] = {}
        self._again: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept no more."""
        if self._again is not None:
            self._again.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)

    async def wait_closed(self) -> None:
        """Let handshakes end that have begun."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _listen(self) -> None:
        self._again = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._back_off(error)
                    return
                continue  # that caller is gone again
            caller = plain_address(address[0])
            stranger = self._connections.is_stranger(caller)
            if self._has_room(stranger):
                connection.setblocking(False)
                self._open(connection, caller if stranger and self._tls is not None else "")
            else:
                connection.close()

    def _back_off(self, error: OSError) -> None:
        """The listener stays readable: without a pause this would be all the loop does."""
        self._loop.remove_reader(self._listener)
        self._again = self._loop.call_later(BACK_OFF_SECONDS, self._listen)
        self._connections.refuse(errno.errorcode.get(error.errno or 0, "OSError"))
        # A connection fewer is a descriptor more.
        self._connections.make_room(self._loop.time())

    def _has_room(self, stranger: bool) -> bool:
        limit = self._connections.limits.connections
        if len(self._connections.open) + len(self._opening) < limit:
            return True
        if len(self._opening) > limit // 2:
            self._connections.refuse("handshakes")
            task = next((task for task, strange in self._opening.items() if strange), next(iter(self._opening)))
            del self._opening[task]
            task.cancel()
            return True
        return self._connections.make_room(self._loop.time(), stranger=stranger)

    def _open(self, connection: socket.socket, stranger: str) -> None:
        """``stranger`` is the address of one; empty for a known caller."""
        task = self._loop.create_task(self._handshake(connection, stranger))
        self._opening[task] = bool(stranger)
        task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.pop(task, None)

    async def _handshake(self, connection: socket.socket, stranger: str) -> None:
        try:
            if stranger:
                await self._connections.turns.wait(stranger, seconds=HANDSHAKE_COST)
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times = {} if self._tls is None else {"ssl_handshake_timeout": HANDSHAKE_SECONDS}
            if self._tls is not None:
                times["ssl_shutdown_timeout"] = SHUTDOWN_SECONDS
            await self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._tls, **times)
        except (OSError, TimeoutError) as error:  # ssl.SSLError is one
            self._connections.refuse("handshake")
            logger.debug("no connection: %s", error)
            connection.close()
        except BaseException:
            connection.close()
            raise


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
