"""The dashboard as a FastAPI application: ``/``, ``/api/overview``, ``/api/events`` and ``/docs``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from html import escape
from importlib.resources import files
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, StreamingResponse
from fastapi_offline import FastAPIOffline
from pydantic.alias_generators import to_camel
from starlette.types import ASGIApp

from app.admission.requests import LoopbackOnly
from app.dashboard.board import Board
from app.dashboard.overview import Overview
from app.framework.dashboard import DashboardSection

#: Seconds without events after which a keep-alive is sent, so that proxies keep the connection open.
_QUIET_SECONDS: Final = 15.0
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def create_dashboard(board: Board) -> ASGIApp:
    """Create the application for a running board. It serves loopback clients only."""
    app = FastAPIOffline(
        title="pykruise dashboard",
        version="1",
        description="Workloads, rollouts, Pods, sidecars, budgets and spreads of a cluster, read-only.",
        redoc_url=None,
    )
    app.include_router(_router(board))
    return LoopbackOnly(app)


def _router(board: Board) -> APIRouter:
    router = APIRouter()
    page = page_with(board.sections)

    @router.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse(page, headers=_HEADERS)

    @router.get("/api/overview", summary="The current state of everything on the page", response_model=board.model)
    async def overview() -> Overview:
        return board.overview()

    @router.get(
        "/api/events",
        summary="The same state as server-sent events: one per section, then one whenever a section changes",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events() -> StreamingResponse:
        return StreamingResponse(_events(board), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return router


def page_with(sections: Iterable[DashboardSection[Any]]) -> str:
    """Return the page with placeholders for these sections, after the built-in ones."""
    page = (files("app.dashboard") / "page.html").read_text("utf-8")
    places = (
        f'<section aria-labelledby="t-{name}"><h2 id="t-{name}">{escape(one.title)} <small></small></h2>'
        f'<ul id="{name}"></ul></section>\n'
        for one in sections
        for name in (escape(to_camel(one.name)),)
    )
    return page.replace("</main>", "".join(places) + "</main>", 1)


async def _events(board: Board) -> AsyncIterator[bytes]:
    async with board.reader() as reader:
        while True:
            try:
                section, payload = await asyncio.wait_for(reader.next(), _QUIET_SECONDS)
            except TimeoutError:
                yield b": keep-alive\n\n"
                continue
            yield b"event: " + section.encode() + b"\ndata: " + payload + b"\n\n"
