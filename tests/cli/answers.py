"""An API server with fixed answers, for commands run as typed."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.kit.objects import kubeconfig


class Answers:
    """An API server that knows these objects by path and nothing else, or that never answers. ``warnings`` are headers
    of every answer."""

    def __init__(self, objects: dict[str, Any], *, silent: bool = False, warnings: tuple[str, ...] = ()) -> None:
        self.asked, self.over = threading.Event(), threading.Event()
        answers = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                answers.asked.set()
                if silent:
                    answers.over.wait()
                    self.close_connection = True
                    return
                path = self.path.partition("?")[0]
                found = objects.get(path)
                if found is None and self.command == "GET" and _is_list(path):
                    found = {"metadata": {"resourceVersion": "1"}, "items": []}
                missing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
                body = json.dumps(found or missing).encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                for warning in warnings:
                    self.send_header("Warning", warning)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

            def log_message(self, format: str, *args: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def kubeconfig(self, folder: Path) -> str:
        path = folder / "config"
        server = f"http://127.0.0.1:{self._server.server_address[1]}"
        path.write_text(yaml.safe_dump(kubeconfig(server)), "utf-8")
        return str(path)

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


def _is_list(path: str) -> bool:
    """Return whether a path names a collection, not an object."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    return len(parts[2:] if parts[:1] == ["namespaces"] and len(parts) > 2 else parts) == 1
