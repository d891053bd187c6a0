"""Events: tell people what was done to an object, where ``kubectl describe`` shows it.

Recording never waits and never fails: events go to a queue, and a task sends them. What cannot be sent is dropped with
a line in the log, for nothing may depend on an event.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Literal, Protocol

from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.errors import (
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    TransportError,
    describe,
    is_namespace_ending,
)
from app.kube.eventcorrelation import MAX_NAME, Correlated, EventCorrelator, Occurrence
from app.kube.objects import Object, ObjectReference
from app.kube.resources import EVENTS, Resource
from app.kube.text import printable

logger = logging.getLogger(__name__)

#: Events that may wait to be sent; more are dropped.
QUEUE_SIZE = 1000
#: An event that the server rejects is sent this often, this far apart.
ATTEMPTS = 12
RETRY_SECONDS = 10.0
#: The longest message the API server takes.
MAX_MESSAGE = 1024

#: The reason of the Warning event on an object whose spec cannot be read; the message begins with the field.
INVALID_SPEC: Final = "InvalidSpec"


class EventMetrics(Protocol):
    """Hooks for counting."""

    def sent(self) -> None: ...
    def dropped(self) -> None: ...


class NoMetrics:
    """Counts nothing."""

    def sent(self) -> None: ...
    def dropped(self) -> None: ...


def reference(resource: Resource, obj: Object, field_path: str = "") -> ObjectReference:
    """How an event names the object; ``field_path`` may point into it (``spec.containers{main}``)."""
    metadata = obj.metadata
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=metadata.namespace or "",
        name=metadata.name,
        uid=metadata.uid or "",
        resource_version=metadata.resource_version or "",
        field_path=field_path,
    )


class EventRecorder:
    """Records events as one component; ``run`` it as a task beside whatever records."""

    def __init__(
        self, client: Client, component: str, *, instance: str = "", metrics: EventMetrics | None = None
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._component = component
        self._instance = instance
        self._metrics = metrics if metrics is not None else NoMetrics()
        self._correlator = EventCorrelator(f"{component} {instance}")
        self._queue: asyncio.Queue[Correlated] = asyncio.Queue(QUEUE_SIZE)

    def event(self, regarding: ObjectReference, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Something happened to the object. ``reason`` is one CamelCase word, ``message`` a sentence."""
        if max(map(len, (regarding.namespace, regarding.name, regarding.uid, regarding.resource_version))) > MAX_NAME:
            # There is no such object, but whoever reaches a webhook can make it up, and what is told is remembered.
            self._metrics.dropped()
            return
        # Messages quote what others wrote, as the output of a probe, which ends with a line break, and are shown on the
        # terminals of whoever looks at the object.
        message = printable(message[: MAX_MESSAGE + 1])
        if len(message) > MAX_MESSAGE:
            message = message[: MAX_MESSAGE - 1] + "…"
        correlated = self._correlator.correlate(Occurrence(regarding, type_, reason, message), self._clock.now())
        if correlated is None:
            self._metrics.dropped()
            return
        try:
            self._queue.put_nowait(correlated)
        except asyncio.QueueFull:
            self._drop(correlated, f"{QUEUE_SIZE} events are waiting already")

    async def run(self) -> None:
        """Send events until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except Exception as error:  # noqa: BLE001 - a mistake over one event must not keep others from being told
                self._drop(event, f"{type(error).__name__}: {error}")
            finally:
                self._queue.task_done()

    async def flush(self, seconds: float) -> bool:
        """Wait until all recorded events are sent, but no longer than this; whether they are."""
        try:
            await self._clock.wait_for(self._queue.join(), seconds)
        except TimeoutError:
            return False
        return True

    async def _send(self, event: Correlated) -> None:
        error: KubeError | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._clock.sleep(RETRY_SECONDS)
            try:
                await self._write(event)
            except (TransportError, ServerError, TooManyRequests) as failure:
                error = failure
            except KubeError as refusal:
                self._drop(event, str(refusal), logging.DEBUG if is_namespace_ending(refusal) else logging.WARNING)
                return
            else:
                self._metrics.sent()
                return
        self._drop(event, str(error))

    async def _write(self, event: Correlated) -> None:
        namespace = event.occurrence.regarding.namespace or "default"
        if event.count > 1:
            try:
                await self._client.patch(EVENTS, event.name, self._repetition(event), namespace)
            except NotFound:
                pass  # the server keeps events for an hour only
            else:
                return
        await self._client.create(EVENTS, self._body(event, namespace), namespace)

    @staticmethod
    def _repetition(event: Correlated) -> dict[str, Any]:
        # Nothing to say is not said: a probe that prints nothing has succeeded too.
        message = {"message": event.occurrence.message} if event.occurrence.message else {}
        return {"count": event.count, "lastTimestamp": rfc3339(event.last), **message}

    def _body(self, event: Correlated, namespace: str) -> dict[str, Any]:
        occurrence = event.occurrence
        regarding = occurrence.regarding
        involved = {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "namespace": regarding.namespace,
            "name": regarding.name,
            "uid": regarding.uid,
            "resourceVersion": regarding.resource_version,
            "fieldPath": regarding.field_path,
        }
        source = {"component": self._component, "host": self._instance}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": namespace},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "type": occurrence.type,
            "reason": occurrence.reason,
            "firstTimestamp": rfc3339(event.first),
            "source": {key: value for key, value in source.items() if value},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            **self._repetition(event),
        }

    def _drop(self, event: Correlated, why: str, level: int = logging.WARNING) -> None:
        self._metrics.dropped()
        occurrence = event.occurrence
        regarding = occurrence.regarding
        name = describe(regarding.kind, regarding.namespace, regarding.name)
        message = occurrence.message.encode("utf-8", "backslashreplace").decode()  # a log must take whatever it says
        logger.log(level, "event %s of %s is dropped: %s: %s", occurrence.reason, name, why, message)
