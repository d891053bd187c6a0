"""How a container behaves on a simulated node: what its command says, unless the Pod or the test says otherwise.

A Pod says it by an annotation, by container (``*``: all), in seconds from the container's start:

    sandbox.pykruise.io/behaviour: '{"main": {"readyAfter": 3, "exitAfter": 60, "exitCode": 1}}'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from app.kube.images import parse_image
from app.kube.objects import Struct
from app.sandbox.kubelet.program import NEVER, Program, program_of
from app.sandbox.objects import Container, Pod

BEHAVIOUR: Final = "sandbox.pykruise.io/behaviour"
"""Annotation on a Pod: how its containers behave, as JSON; see :class:`Script`."""

UNREADY: Final = "sandbox.pykruise.io/unready"
"""Annotation on a Pod, for tests and demonstrations: names of containers, joined by commas, that shall not be ready."""

CRASH: Final = "sandbox.pykruise.io/crash"
"""Annotation on a Pod: names of containers, joined by commas, that shall crash now; taken away when they have."""


class Script(Struct, frozen=True):
    """What the annotation may say about one container. Seconds; what is not said follows from the command."""

    #: How long pulling its image takes, and the error it ends with.
    pull_seconds: float | None = None
    pull_error: str = ""
    start_seconds: float | None = None
    stop_seconds: float | None = None
    #: When its probes begin to succeed, and stop to.
    started_after: float = 0.0
    ready_after: float = 0.0
    ready_until: float = NEVER
    alive_until: float = NEVER
    #: When it ends by itself, and how.
    exit_after: float | None = None
    exit_code: int = 0
    #: What it prints when it starts.
    log: tuple[str, ...] = ()


UNSAID: Final = Script()


class BehaviourError(ValueError):
    """The annotation says nothing we understand."""


_decode = msgspec.json.Decoder(dict[str, Script]).decode


@lru_cache(maxsize=256)
def scripts(annotation: str) -> Mapping[str, Script]:
    """Script by container. Raises BehaviourError naming what is wrong."""
    if not annotation:
        return {}
    try:
        return _decode(annotation)
    except msgspec.MsgspecError as error:
        raise BehaviourError(f"annotation {BEHAVIOUR}: {error}") from None


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a container takes to start, to start again with another image, to stop, and to pull its image."""

    start: float = 0.0
    restart: float = 0.0
    stop: float = 0.0
    pull: float = 0.0


@dataclass(frozen=True, slots=True)
class Behaviour:
    """All that is decided about one container before it runs."""

    program: Program
    script: Script = UNSAID
    pull_error: str = ""

    @property
    def ends(self) -> float:
        """Seconds after its start when the container ends by itself."""
        return self.program.ends if self.script.exit_after is None else self.script.exit_after

    @property
    def code(self) -> int:
        """The exit code it then has."""
        return self.program.code if self.script.exit_after is None else self.script.exit_code


#: What a test or simulation decides about a container instead of its annotation.
Scripts: TypeAlias = Callable[[Pod, Container], Script | None]


def behaviour_of(
    pod: Pod, container: Container, env: Mapping[str, str], decide: Scripts | None = None, *, init: bool = False
) -> Behaviour:
    """How the container behaves. An annotation nobody understands counts as none; ``script_error`` says so."""
    script = decide(pod, container) if decide is not None else None
    if script is None:
        try:
            by_name = scripts(pod.metadata.annotations.get(BEHAVIOUR, ""))
        except BehaviourError:
            by_name = {}
        script = by_name.get(container.name) or by_name.get("*") or UNSAID
    program = program_of(container.command, container.args, env)
    means_nothing = not program.understood or not (container.command or container.args)
    if means_nothing and _is_job(pod, container, init):
        program = Program(ends=0.0, lines=program.lines)
    return Behaviour(program, script, script.pull_error or unreachable(container.image))


def script_error(pod: Pod) -> str:
    """What is wrong with the Pod's annotation; '' if nothing."""
    try:
        scripts(pod.metadata.annotations.get(BEHAVIOUR, ""))
    except BehaviourError as error:
        return str(error)
    return ""


def _is_job(pod: Pod, container: Container, init: bool) -> bool:
    """Whether a container of which nothing is known is one that comes to an end."""
    if init:
        return container.restart_policy != "Always"
    return pod.spec.restart_policy != "Always" and pod.metadata.controller is not None


def unreachable(image: str) -> str:
    """Why the image cannot be pulled: no registry's name ends in ``.invalid`` (RFC 2606)."""
    parsed = parse_image(image)
    host = parsed.repository.partition("/")[0].partition(":")[0] if parsed is not None else ""
    if not host.endswith(".invalid"):
        return ""
    return f'failed to resolve reference "{image}": lookup {host}: no such host'
