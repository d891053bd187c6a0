"""Webhooks for the conformance cases: one HTTPS server, a path for each behavior."""

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web

from app.certs.issue import CertificateSet, issue

Review = dict[str, Any]


class HookServer:
    """Answers reviews and records them."""

    def __init__(self) -> None:
        self.asked: list[Review] = []
        self.url = ""

    @property
    def ca_bundle(self) -> str:
        return base64.b64encode(certificates().ca_cert).decode()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        review = await request.json()
        self.asked.append({"path": request.path, **review})
        return await _BEHAVIOURS[request.match_info["behaviour"]](request, review)


@cache
def certificates() -> CertificateSet:
    """One certificate, shared by all tests of a run."""
    return issue(("127.0.0.1", "localhost"), datetime.now(UTC))


@asynccontextmanager
async def hook_server() -> AsyncIterator[HookServer]:
    """Run the server on a free port."""
    server = HookServer()
    app = web.Application()
    for path in ("/{behaviour}", "/{behaviour}/{argument}"):
        app.router.add_post(path, server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_context())
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"https://127.0.0.1:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "cert.pem"), Path(folder, "key.pem")
        pair[0].write_bytes(certificates().cert)
        pair[1].write_bytes(certificates().key)
        context.load_cert_chain(*pair)
    return context


# ---- behaviours

Behaviour = Callable[[web.Request, Review], Awaitable[web.StreamResponse]]


def _says(**answer: Any) -> Behaviour:
    async def behave(_: web.Request, review: Review) -> web.StreamResponse:
        return _reviewed(review, **answer)

    return behave


def _reviewed(review: Review, **answer: Any) -> web.Response:
    uid = review.get("request", {}).get("uid", "")
    version = answer.pop("apiVersion", review.get("apiVersion"))
    kind = answer.pop("kind", "AdmissionReview")
    return web.json_response({"apiVersion": version, "kind": kind, "response": {"uid": uid, **answer}})


def _sends(text: str, status: int = 200) -> Behaviour:
    async def behave(_: web.Request, _review: Review) -> web.StreamResponse:
        return web.Response(text=text, status=status, content_type="application/json")

    return behave


def _patch(*operations: Any) -> str:
    return base64.b64encode(json.dumps(operations).encode()).decode()


def _patches(*operations: Any, kind: str | None = "JSONPatch") -> Behaviour:
    more = {} if kind is None else {"patchType": kind}
    return _says(allowed=True, patch=_patch(*operations), **more)


async def _labels(request: web.Request, review: Review) -> web.StreamResponse:
    """Add a label named in the path; its value is the previous number of labels."""
    labels = review["request"]["object"]["metadata"].get("labels")
    name, value = request.match_info["argument"], str(len(labels or ()))
    operation = {"op": "add", "path": f"/metadata/labels/{name}", "value": value}
    if labels is None:
        operation = {"op": "add", "path": "/metadata/labels", "value": {name: value}}
    return _reviewed(review, allowed=True, patchType="JSONPatch", patch=_patch(operation))


async def _slow(_: web.Request, review: Review) -> web.StreamResponse:
    await asyncio.sleep(1.5)  # longer than the caller's timeout
    return _reviewed(review, allowed=True)


async def _drop(request: web.Request, _review: Review) -> web.StreamResponse:
    request.transport.close()
    return web.Response()


async def _convert(request: web.Request, review: Review) -> web.StreamResponse:
    """Convert by writing the version into a field; the path names the error to make."""
    asked = review["request"]
    wrong = request.match_info.get("argument", "")
    objects = [{**one, "apiVersion": asked["desiredAPIVersion"]} for one in asked["objects"]]
    for one in objects:
        one["spec"] = {**one.get("spec", {}), "converted": asked["desiredAPIVersion"]}
    answer: Review = {"uid": asked["uid"], "convertedObjects": objects, "result": {"status": "Success"}}
    if wrong == "failure":
        answer = {"uid": asked["uid"], "result": {"status": "Failure", "message": "not today"}}
    if wrong == "uid":
        answer["uid"] = "another"
    if wrong == "count":
        answer["convertedObjects"] = []
    if wrong == "version":
        answer["convertedObjects"] = asked["objects"]
    if wrong == "name":
        objects[0]["metadata"] = {**objects[0]["metadata"], "name": "another"}
    if wrong == "labels":
        objects[0]["metadata"] = {**objects[0]["metadata"], "labels": {"converted": "true"}}
    if wrong == "text":
        return web.Response(text="what?", content_type="application/json")
    return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer})


_BEHAVIOURS: dict[str, Behaviour] = {
    "allow": _says(allowed=True),
    "deny": _says(allowed=False, status={"message": "not in my cluster"}),
    "deny-silently": _says(allowed=False),
    "deny-code": _says(allowed=False, status={"message": "come back later", "code": 429, "reason": "TooManyRequests"}),
    "deny-reason": _says(allowed=False, status={"reason": "BecauseISaySo"}),
    "deny-details": _says(
        allowed=False,
        status={
            "message": "look at the field",
            "code": 422,
            "reason": "Invalid",
            "details": {"causes": [{"reason": "FieldValueInvalid", "message": "too blue", "field": "spec.colour"}]},
        },
    ),
    "deny-odd-code": _says(allowed=False, status={"message": "teapot", "code": 200}),
    "warn": _says(allowed=True, warnings=["mind the gap", "and the step"]),
    "deny-and-warn": _says(allowed=False, status={"message": "no"}, warnings=["I warned you"]),
    "labels": _labels,
    "patch-missing": _patches({"op": "replace", "path": "/spec/no/such/field", "value": 1}),
    "patch-test-fails": _patches({"op": "test", "path": "/metadata/name", "value": "somebody-else"}),
    "patch-nonsense": _says(allowed=True, patchType="JSONPatch", patch=base64.b64encode(b"{").decode()),
    "patch-no-type": _patches({"op": "remove", "path": "/data"}, kind=None),
    "patch-merge-type": _patches({"op": "remove", "path": "/data"}, kind="MergePatch"),
    "patch-empty": _says(allowed=True, patchType="JSONPatch", patch=""),
    "patch-base64": _says(allowed=True, patchType="JSONPatch", patch="***"),
    "patch-name": _patches({"op": "replace", "path": "/metadata/name", "value": "renamed"}),
    "patch-wrong-type": _patches({"op": "add", "path": "/data", "value": "text"}),
    "patch-unknown-field": _patches({"op": "add", "path": "/unknown", "value": {"a": 1}}),
    "patch-untracked": _patches({"op": "remove", "path": "/metadata/managedFields"}),
    "patch-data": _patches({"op": "add", "path": "/data", "value": {"patched": "yes"}}),
    "patch-and-deny": _says(allowed=False, patchType="JSONPatch", patch=_patch({"op": "remove", "path": "/data"})),
    "nonsense": _sends("what?"),
    "empty": _sends(""),
    "empty-object": _sends("{}"),
    "error": _sends("out of order", 500),
    "not-found": _sends("nobody here", 404),
    "no-response": _sends('{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}'),
    "wrong-kind": _says(allowed=True, kind="Review"),
    "wrong-version": _says(allowed=True, apiVersion="admission.k8s.io/v1beta1"),
    "other-version": _says(allowed=True, apiVersion="admission.k8s.io/v7"),
    "wrong-uid": _says(allowed=True, uid="another"),
    "slow": _slow,
    "drop": _drop,
    "convert": _convert,
}
