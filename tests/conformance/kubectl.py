"""Runs kubectl scripts against a server, and returns the output without parts that differ between runs."""

import asyncio
import os
import re
import shlex
import subprocess
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from app.kube.clock import SystemClock
from app.sandbox.apiserver.https import HttpsServer
from app.sandbox.apiserver.server import ApiServer
from tests.conformance.kubectl_scripts import Command

_DIFFERENT = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z"), "<time>"),
    (re.compile(r"\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} [+-]\d{4}"), "<time>"),
    (re.compile(r'((?:resourceVersion|Resource Version)"?: +"?)\d+'), r"\1<version>"),
    (re.compile(r"https?://127\.0\.0\.1:\d+"), "<server>"),
    (re.compile(r"/tmp/\S*kubectl-edit-\d+"), "<file>"),
    (re.compile(r"/tmp/(LIVE|MERGED)-\d+"), r"<\1>"),
    (re.compile(r"^([+-]{3} .*?)\t.*$", re.MULTILINE), r"\1"),
    (re.compile(r"^[EWI]\d{4} \d{2}:\d{2}:\d{2}\.\d+ +\d+ ", re.MULTILINE), ""),
    (re.compile(r"(?<![\w.:=-])(\d+m)?\d+s(?![\w-])"), "<age>"),
    # The order of fields inside a message is irrelevant.
    (re.compile(r'Invalid value: "(\{|map\[).*(\}|\])(?=": )'), "Invalid value: <object>"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True)
class Said:
    """The outcome of one command."""

    command: str
    code: int
    output: str
    errors: str


@dataclass(frozen=True)
class Kubectl:
    program: Path
    kubeconfig: Path
    cache: Path

    def run(self, *arguments: str, stdin: str = "", editor: str = "") -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.cache),
            "EDITOR": f"sed -i -e {shlex.quote(editor)}" if editor else "true",
        }
        return subprocess.run(
            [str(self.program), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=60,
        )

    @contextmanager
    def namespace(self) -> Iterator[str]:
        """A new namespace with a ServiceAccount for Pods."""
        name = f"k-{uuid.uuid4().hex[:10]}"
        self.run("create", "namespace", name)
        self.run("create", "serviceaccount", "default", "-n", name)  # unless a controller has created it
        yield name
        self.run("delete", "namespace", name, "--wait=false")

    def script(self, commands: Sequence[Command]) -> list[Said]:
        with self.namespace() as namespace:
            return [self._said(command, namespace) for command in commands]

    def _said(self, command: Command, namespace: str) -> Said:
        arguments = [argument.replace("{ns}", namespace) for argument in command.arguments]
        stdin = command.stdin.replace("{ns}", namespace)
        done = self.run("-n", namespace, *arguments, stdin=stdin, editor=command.editor)
        shown = [_normal(text, namespace) for text in (done.stdout, done.stderr)]
        return Said(shlex.join(command.arguments), done.returncode, *shown)


def _normal(text: str, namespace: str) -> str:
    text = text.replace(namespace, "NS")
    for pattern, replacement in _DIFFERENT:
        text = pattern.sub(replacement, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


@contextmanager
def served_sandbox(kubeconfig: Path) -> Iterator[None]:
    """Serve an embedded API server over HTTPS inside the context; its kubeconfig is written to a file."""
    ready, ended = threading.Event(), threading.Event()

    async def serve() -> None:
        api = ApiServer(clock=SystemClock(), rng=Random(1))
        async with HttpsServer.start(api) as server:
            kubeconfig.write_text(server.kubeconfig())
            ready.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="sandbox", daemon=True)
    thread.start()
    try:
        assert ready.wait(20), "the sandbox does not listen"
        yield
    finally:
        ended.set()
        thread.join(20)
