"""Webhooks in process: what they are asked, what their answers do, and what happens where none comes."""

import asyncio
import base64
import gc
import warnings
from random import Random
from typing import Any

import orjson
import pytest

from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.errors import ApiError, ServerError
from app.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    MUTATINGWEBHOOKCONFIGURATIONS,
    VALIDATINGWEBHOOKCONFIGURATIONS,
)
from app.sandbox.apiserver.hooks import CallFailed
from app.sandbox.apiserver.server import ApiServer
from tests.kit.cluster import in_api_server

CONFIG = {"metadata": {"name": "c"}, "data": {"a": "1"}}


class Hook:
    """A webhook server in this process: notes what it is asked, and answers what it is told to."""

    def __init__(self, api: ApiServer, **response: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self.response = {"allowed": True, **response}
        self.seconds = 0.0
        api.webhooks.local["hooks.system"] = self

    async def __call__(self, _path: str, body: bytes) -> tuple[int, bytes]:
        request = orjson.loads(body)["request"]
        self.asked.append(request)
        await asyncio.sleep(self.seconds)
        answer = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        return 200, orjson.dumps({**answer, "response": {"uid": request["uid"], **self.response}})


def configuration(**more: Any) -> dict[str, Any]:
    rule = {"apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["*"],
            "resources": ["configmaps", "deployments/scale"]}  # fmt: skip
    hook = {
        "name": "one.example.com",
        "clientConfig": {"service": {"name": "hooks", "namespace": "system", "path": "/x"}},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 3,
        **more,
    }
    return {"metadata": {"name": "hooks"}, "webhooks": [hook]}


@in_api_server
async def test_a_mutating_hook_changes_the_object(client: Client, api: ApiServer) -> None:
    patch = base64.b64encode(orjson.dumps([{"op": "add", "path": "/data/b", "value": "2"}])).decode()
    hook = Hook(api, patch=patch, patchType="JSONPatch", warnings=["mind the gap"])
    await client.create(MUTATINGWEBHOOKCONFIGURATIONS, configuration())
    made = await client.create(CONFIGMAPS, CONFIG, "default")
    assert made["data"] == {"a": "1", "b": "2"}
    assert (hook.asked[0]["operation"], hook.asked[0]["namespace"]) == ("CREATE", "default")


@in_api_server
async def test_a_validating_hook_refuses_in_its_words(client: Client, api: ApiServer) -> None:
    Hook(api, allowed=False, status={"message": "not today", "code": 403, "reason": "Forbidden"})
    await client.create(VALIDATINGWEBHOOKCONFIGURATIONS, configuration())
    with pytest.raises(ApiError) as caught:
        await client.create(CONFIGMAPS, CONFIG, "default")
    assert caught.value.code == 403
    assert caught.value.message == 'admission webhook "one.example.com" denied the request: not today'


@pytest.mark.parametrize(("policy", "passes"), [("Fail", False), ("Ignore", True)])
@in_api_server
async def test_a_slow_hook_is_not_waited_for(client: Client, api: ApiServer, policy: str, passes: bool) -> None:
    hook = Hook(api)
    hook.seconds = 10
    await client.create(VALIDATINGWEBHOOKCONFIGURATIONS, configuration(failurePolicy=policy))
    began = asyncio.get_running_loop().time()
    if passes:
        await client.create(CONFIGMAPS, CONFIG, "default")
    else:
        with pytest.raises(ServerError) as caught:
            await client.create(CONFIGMAPS, CONFIG, "default")
        assert caught.value.message == (
            'Internal error occurred: failed calling webhook "one.example.com": failed to call webhook: Post '
            '"https://hooks.system.svc:443/x?timeout=3s": context deadline exceeded'
        )
    assert asyncio.get_running_loop().time() - began == pytest.approx(3)


@pytest.mark.parametrize(
    ("more", "called"),
    [
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, False),
        ({"matchConditions": [{"name": "a", "expression": "object.data.a == '1'"}]}, True),
        ({"matchConditions": [{"name": "a", "expression": "object.data.a == '2'"}]}, False),
        ({"matchConditions": [{"name": "a", "expression": "request.operation == 'DELETE'"}]}, False),
    ],
)
def test_only_whom_it_concerns_is_asked(more: dict[str, Any], called: bool) -> None:
    async def scenario(client: Client, api: ApiServer) -> bool:
        hook = Hook(api)
        await client.create(VALIDATINGWEBHOOKCONFIGURATIONS, configuration(**more))
        await client.create(CONFIGMAPS, CONFIG, "default")
        return bool(hook.asked)

    assert in_api_server(scenario)() is called


@in_api_server
async def test_a_dry_run_is_told_only_to_hooks_without_side_effects(client: Client, api: ApiServer) -> None:
    hook = Hook(api)
    await client.create(VALIDATINGWEBHOOKCONFIGURATIONS, configuration())
    await client.create(CONFIGMAPS, CONFIG, "default", dry_run=True)
    assert hook.asked[0]["dryRun"] is True


@in_api_server
async def test_a_scale_is_shown_as_a_scale(client: Client, api: ApiServer) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await client.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, "default")
    hook = Hook(api)
    await client.create(VALIDATINGWEBHOOKCONFIGURATIONS, configuration())
    await client.patch(DEPLOYMENTS, "d", {"spec": {"replicas": 4}}, "default", subresource="scale")
    [asked] = hook.asked
    assert asked["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (asked["oldObject"]["spec"], asked["object"]["spec"]) == ({"replicas": 1}, {"replicas": 4})


@in_api_server
async def test_deletions_are_asked_about_with_the_old_object(client: Client, api: ApiServer) -> None:
    await client.create(CONFIGMAPS, CONFIG, "default")
    hook = Hook(api)
    await client.create(VALIDATINGWEBHOOKCONFIGURATIONS, configuration())
    await client.delete(CONFIGMAPS, "c", "default")
    assert hook.asked[0]["operation"] == "DELETE"
    assert hook.asked[0]["object"] is None
    assert hook.asked[0]["oldObject"]["data"] == {"a": "1"}


async def test_connections_to_webhooks_are_closed_with_the_server() -> None:
    api = ApiServer(clock=SystemClock(), rng=Random(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # what others left behind
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(CallFailed, match="connection refused"):
            await api.webhooks.call("https://127.0.0.1:1/x", "", {}, 5)
        await api.aclose()
        gc.collect()
    assert not [str(one.message) for one in seen]


async def test_a_long_answer_that_comes_in_pieces_is_read_to_its_end() -> None:
    answer = b'{"response":{"uid":"u","allowed":true,"patch":"' + b"x" * 3_000_000 + b'"}}'

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer))
        writer.write(answer)
        await writer.drain()
        writer.close()

    api = ApiServer(clock=SystemClock(), rng=Random(1))
    async with await asyncio.start_server(answers, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await api.webhooks.call(f"http://127.0.0.1:{port}/x", "", {}, 30)
        assert len(found["response"]["patch"]) == 3_000_000
        await api.aclose()
