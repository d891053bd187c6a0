"""Accepting connections: never more than the port's limit, handshakes included, and on through running out of
descriptors, where an event loop's own server would give up its listener."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from app.manager.callers import plain_address
from app.manager.limits import Connections

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
