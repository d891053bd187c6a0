"""The baseline of the admission benchmark: a route that only parses and allows a review."""

from __future__ import annotations

import orjson
from fastapi import FastAPI, Request, Response

app = FastAPI(openapi_url=None)


@app.get("/healthz")
async def healthz() -> Response:
    """Report that the server is running."""
    return Response(b"ok")


@app.post("/mutate-pod")
async def allow(request: Request) -> Response:
    """Allow the request."""
    review = orjson.loads(await request.body())
    answer = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": True},
    }
    return Response(orjson.dumps(answer), media_type="application/json")
