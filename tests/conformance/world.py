"""Runs conformance cases on an API server, real or embedded, and returns its answers without varying parts."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from app.kube.wire import Request, Transport
from tests.cluster.controlplane import decoded
from tests.conformance import definitions
from tests.conformance.hooks import HookServer
from tests.conformance.normal import Normaliser
from tests.conformance.steps import Call, Case, Hooks, Step, Watch
from tests.deadline import Deadline

#: Seconds for asynchronous effects: the deletion of a namespace, a CRD that is served.
DEADLINE = 30.0
#: Seconds for an answer or the events of a watch, also on a busy machine.
REQUEST_SECONDS = 120.0
_REFERENCE = re.compile(r"\$\{([\w.*-]+)\}")
_CLUSTER_SCOPED = re.compile(
    r"/api/v1/(nodes|persistentvolumes|namespaces)|/apis/(?!authorization|authentication)[-.\w]+/v\w+/(?!namespaces/)\w+"
)


class World:
    """An API server. ``real``: with a controller manager, which creates each namespace's default ServiceAccount."""

    def __init__(self, transport: Transport, *, real: bool, hooks: HookServer) -> None:
        self._transport = transport
        self.real = real
        self._hooks = hooks
        self._made: list[str] = []

    async def run(self, case: Case, namespace: str) -> list[Any]:
        """Return the answers of a case's steps. Raises ``AssertionError`` if a preparation fails."""
        for need in case.needs:
            await self._define(need)
        self._hooks.asked.clear()
        running = _Running(self, namespace, self._hooks)
        try:
            return [found for step in case.steps if (found := await running.step(step)) is not None]
        finally:
            await self._remove()

    async def send(
        self, call: Call, path: str, body: bytes | None, query: Mapping[str, str]
    ) -> tuple[int, Any, list[str]]:
        headers = {"Accept": "application/json", "User-Agent": "conformance/1", **call.headers}
        answer = await self._transport.request(Request(call.method, path, query, headers, body, REQUEST_SECONDS))
        if call.method == "POST" and answer.status == 201 and _CLUSTER_SCOPED.fullmatch(path) and "dryRun" not in query:
            self._made.append(f"{path}/{_name(json.loads(answer.body))}")
        return answer.status, decoded(answer.body), _warnings(answer.headers)

    def stream(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        sent = {"Accept": "application/json", "User-Agent": "conformance/1", **headers}
        return self._transport.stream(Request("GET", path, query, sent, timeout=REQUEST_SECONDS))

    async def namespaces(self, count: int) -> list[str]:
        """Return new namespaces in which Pods can be created."""
        names = [f"c-{uuid.uuid4().hex[:10]}" for _ in range(count)]
        for name in names:
            await self._ask("POST", "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": name}})
            if not self.real:
                account = {"kind": "ServiceAccount", "metadata": {"name": "default"}}
                path = f"/api/v1/namespaces/{name}/serviceaccounts"
                await self._ask("POST", path, account, (201, 409))
        for name in names:
            await self._until(f"/api/v1/namespaces/{name}/serviceaccounts/default")
            await self._until(f"/api/v1/namespaces/{name}/configmaps/kube-root-ca.crt", only=self.real)
        return names

    async def _define(self, plural: str) -> None:
        """Create the shared CRD of that name, unless it exists, and wait until it is served."""
        crd = definitions.BY_PLURAL[plural]
        collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await self._ask("POST", collection, crd, (201, 409))
        for version in crd["spec"]["versions"]:
            if version["served"]:
                await self._until(f"/apis/{crd['spec']['group']}/{version['name']}/{plural}")

    async def _remove(self) -> None:
        """Delete what a case created outside its namespace."""
        made, self._made = self._made, []
        for path in reversed(made):
            await self._ask("DELETE", path, {"gracePeriodSeconds": 0}, (200, 202, 404, 409))

    async def _until(self, path: str, *, only: bool = True) -> None:
        if not only:
            return
        deadline = Deadline(DEADLINE)
        while (await self._transport.request(Request("GET", path, {}, {}, None, REQUEST_SECONDS))).status != 200:
            assert not deadline.passed(), f"not within {DEADLINE:g} s: {path}"
            await asyncio.sleep(0.02)

    async def _ask(self, method: str, path: str, body: Any, wanted: tuple[int, ...] = (201,)) -> None:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = Request(method, path, {}, headers, json.dumps(body).encode(), REQUEST_SECONDS)
        answer = await self._transport.request(request)
        if answer.status not in wanted:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.body[:500]!r}")


class _Running:
    """A running case and its answers so far, for steps that refer to them."""

    def __init__(self, world: World, namespace: str, hooks: HookServer) -> None:
        self._world = world
        self._namespace = namespace
        self._hooks = hooks
        self._normaliser = Normaliser(namespace)
        self._answers: list[Any] = []

    async def step(self, step: Step) -> Any:
        if isinstance(step, Call):
            return await self._call(step)
        if isinstance(step, Watch):
            return await self._watch(step)
        return await self._asked(step)

    async def _call(self, call: Call) -> Any:
        path, query = self._filled(call.path), {key: self._filled(value) for key, value in call.query.items()}
        payload = call.payload()
        body = None if payload is None else self._filled(payload.decode()).encode()
        status, answered, warnings = await self._world.send(call, path, body, query)
        if call.until is not None:
            deadline = Deadline(DEADLINE)
            while not call.until(status, answered):
                assert not deadline.passed(), f"{call.method} {path}: after {DEADLINE:g} s still {status} {answered}"
                await asyncio.sleep(0.02)
                status, answered, warnings = await self._world.send(call, path, body, query)
        self._answers.append(answered)
        if call.quiet:
            assert status < 300, f"{call.method} {path}: {status} {answered}"
            return None
        shown = self._normaliser.answer(answered, keep=call.keep, drop=call.drop, managed=call.managed)
        found: dict[str, Any] = {"call": f"{call.method} {call.path}", "status": status, "body": shown}
        if warnings:
            found["warnings"] = [self._normaliser.answer(warning) for warning in warnings]
        return found

    async def _watch(self, watch: Watch) -> Any:
        path, query = self._filled(watch.path), {key: self._filled(value) for key, value in watch.query.items()}
        events: list[Any] = []
        async with self._world.stream(path, {"watch": "true", **query}, watch.headers) as stream:
            lines = _lines(stream.chunks)
            if stream.status != 200:
                text = [line async for line in lines]
                shown = self._normaliser.answer(decoded(b"".join(text)))
                self._answers.append(shown)
                return {"call": f"WATCH {watch.path}", "status": stream.status, "body": shown}
            for call in watch.during:
                await self._call(call)
            async with asyncio.timeout(REQUEST_SECONDS):
                while len(events) < watch.count and (line := await anext(lines, None)) is not None:
                    events.append(json.loads(line))
        self._answers.append(events)
        shown = [[event["type"], self._event(event, watch)] for event in events]
        return {"call": f"WATCH {watch.path}", "status": 200, "events": shown}

    def _event(self, event: Any, watch: Watch) -> Any:
        if event["type"] == "ERROR":
            return self._normaliser.answer(event["object"])
        keep = ("kind", "metadata.annotations") if event["type"] == "BOOKMARK" else watch.keep
        return self._normaliser.answer(event["object"], keep=keep)

    async def _asked(self, step: Hooks) -> Any:
        # Requests that do not count check whether a configuration has taken effect.
        asked = [one for one in self._hooks.asked if "probe" not in one["path"]]
        self._hooks.asked.clear()
        self._answers.append(asked)
        shown = [self._normaliser.answer(one, keep=step.keep) for one in asked]
        if step.distinct:
            shown = [one for index, one in enumerate(shown) if one not in shown[:index]]
        return {"call": "asked of webhooks", "body": shown}

    def _filled(self, text: str) -> str:
        text = text.replace("{ns}", self._namespace)
        return _REFERENCE.sub(lambda match: self._referred(match.group(1)), text)

    def _referred(self, name: str) -> str:
        if name == "hooks":
            return self._hooks.url
        if name == "ca":
            return self._hooks.ca_bundle
        value: Any = self._answers
        for part in name.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        return str(value)


def _name(body: Any) -> str:
    found: Any = body["rows"][0]["object"] if body["kind"] == "Table" else body
    return str(found["metadata"]["name"])


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


def _warnings(headers: Mapping[str, str]) -> list[str]:
    getall = getattr(headers, "getall", None)
    if getall is not None:
        return list(getall("Warning", []))
    return [value for name, value in headers.items() if name.lower() == "warning"]
