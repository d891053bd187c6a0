"""Behavior of simulated programs: shell scripts, and behavior declared in annotations."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from app.kube.images import parse_image
from app.kube.objects import Struct
from app.sandbox.objects import Container, Pod

# Predicts what a container's command would do instead of running it: when it exits, what it prints, and which files it
# touches. Simulated nodes run nothing, but tests and manuals use the same few shell commands: ``sleep 5``, ``exit 1``,
# ``echo``, ``touch /tmp/ready``, ``while true; do …; sleep 1; done``. These are interpreted, so a manifest behaves the
# same here as on real nodes. Other commands run until stopped. Pure. Times are seconds since the container started.

NEVER: Final = float("inf")
_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash"})
_ENDLESS: Final = frozenset({"infinity", "inf"})
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_VARIABLE: Final = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\}|(\w+))")
#: Folders that are assumed to be empty in an image.
_SCRATCH: Final = ("/tmp/", "/run/", "/var/run/")  # noqa: S108  # nothing is written there
#: Exit codes after SIGKILL and SIGTERM.
KILLED: Final = 137
TERMINATED: Final = 143
#: Maximum number of iterations of an endless loop whose output is returned.
MAX_LINES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Program:
    """The predicted run of a container. ``ends`` is in seconds after the start, or ``NEVER`` if it runs until
    stopped."""

    ends: float = NEVER
    code: int = 0
    #: Printed lines with their times.
    lines: tuple[tuple[float, str], ...] = ()
    #: Path → times at which the file is alternately created and removed.
    files: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    #: From ``loop_from`` on, the program prints ``loop_lines`` every ``loop_seconds``.
    loop_from: float = NEVER
    loop_seconds: float = 0.0
    loop_lines: tuple[tuple[float, str], ...] = ()
    #: Exit code after SIGTERM. None means that the program ignores SIGTERM and runs until SIGKILL.
    on_term: int | None = 0
    #: Whether the command could be interpreted.
    understood: bool = True

    def printed(self, seconds: float) -> Iterator[tuple[float, str]]:
        """Return the lines printed in the first ``seconds``."""
        until = min(seconds, self.ends)
        yield from (line for line in self.lines if line[0] <= until)
        if self.loop_seconds <= 0 or not self.loop_lines:
            return
        turns = min(int(max(0.0, until - self.loop_from) / self.loop_seconds) + 1, MAX_LINES)
        for turn in range(turns):
            for offset, text in self.loop_lines:
                moment = self.loop_from + turn * self.loop_seconds + offset
                if moment <= until:
                    yield moment, text

    def has_file(self, path: str, seconds: float) -> tuple[bool, float] | None:
        """Return whether the file exists at that time and until when this holds, or None if the program never touches
        it."""
        moments = self.files.get(path)
        if moments is None:
            return None
        passed = sum(moment <= seconds for moment in moments)
        return passed % 2 == 1, moments[passed] if passed < len(moments) else NEVER


#: A container without a command: assumed to run until stopped and to exit on SIGTERM.
SERVER: Final = Program()


def program_of(command: Sequence[str], args: Sequence[str], env: Mapping[str, str]) -> Program:
    """Predict the run of a container with this command, args and environment."""
    words = tuple(_expanded(word, env, only_parentheses=True) for word in (*command, *args))
    if not words:
        return SERVER
    return _program(words, tuple(sorted(env.items())))


def hook_of(command: Sequence[str]) -> Program:
    """Predict the run of a hook. Hooks that cannot be interpreted take no time."""
    found = _program(tuple(command), ())
    return found if found.understood and found.ends < NEVER else Program(ends=0.0)


@lru_cache(maxsize=2048)
def _program(words: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> Program:
    first = words[0].rpartition("/")[2]
    if first in _SHELLS and len(words) > 2 and words[1].startswith("-") and words[1].endswith("c"):
        reader = _Reader(dict(env))
        reader.run(words[2])
        return reader.program(on_term=reader.trap)
    reader = _Reader(dict(env))
    reader.simple(list(words))
    # The plain commands in tests and manuals exit on SIGTERM even as PID 1.
    return reader.program(on_term=TERMINATED)


class _Reader:
    """Interprets a script command by command and keeps track of time."""

    def __init__(self, env: dict[str, str]) -> None:
        self._env = env
        self._now = 0.0
        self._over = False
        self._code = 0
        self._endless = False
        self._understood = True
        self._lines: list[tuple[float, str]] = []
        self._files: dict[str, list[float]] = {}
        self._loop: tuple[float, float, tuple[tuple[float, str], ...]] = (NEVER, 0.0, ())
        self.trap: int | None = None

    def program(self, *, on_term: int | None) -> Program:
        """Return the resulting program."""
        return Program(
            ends=NEVER if self._endless else self._now,
            code=self._code,
            lines=tuple(self._lines),
            files={path: tuple(moments) for path, moments in self._files.items()},
            loop_from=self._loop[0],
            loop_seconds=self._loop[1],
            loop_lines=self._loop[2],
            on_term=on_term,
            understood=self._understood,
        )

    def run(self, script: str) -> None:
        """Interpret the script until it ends or loops forever."""
        for separator, command in _commands(script):
            if self._over or self._endless:
                return
            if (separator == "&&" and self._code != 0) or (separator == "||" and self._code == 0):
                continue
            if loop := re.fullmatch(r"while\s+(?:true|:|\[ 1 \])\s*;?\s*do\s(.*)done", command, re.DOTALL):
                self._repeat(loop[1])
                return
            try:
                self.simple(shlex.split(command))
            except ValueError:
                self._unknown()

    def _repeat(self, body: str) -> None:
        inner = _Reader(self._env)
        inner.run(body.strip().rstrip(";"))
        began = self._now
        if inner._over:
            self._lines += [(began + moment, text) for moment, text in inner._lines]
            self._now, self._code, self._over = began + inner._now, inner._code, True
            return
        self._endless = True
        self._loop = (began, inner._now, tuple(inner._lines))

    def simple(self, words: list[str]) -> None:
        """Interpret one simple command."""
        if words and words[0] == "exec":
            words = words[1:]
        if not words:
            return
        name, arguments = words[0].rpartition("/")[2], words[1:]
        self._code = 0
        match name:
            case "sleep":
                self._sleep(arguments)
            case "exit":
                self._over = True
                self._code = int(arguments[0]) if arguments and arguments[0].isdigit() else 0
            case "true" | ":" | "set" | "export":
                pass
            case "false":
                self._code = 1
            case "echo" | "printf":
                self._echo(arguments)
            case "touch":
                self._touch(arguments)
            case "rm":
                for path in (one for one in arguments if not one.startswith("-")):
                    if len(self._files.get(path, ())) % 2 == 1:
                        self._files[path].append(self._now)
            case "test" | "[":
                self._code = 0 if answer_of((name, *arguments), self.program(on_term=0), self._now)[0] else 1
            case "trap":
                self._trap(arguments)
            case _:
                self._unknown()

    def _sleep(self, arguments: Sequence[str]) -> None:
        for argument in arguments:
            found = _DURATION.fullmatch(argument)
            if argument in _ENDLESS:
                self._endless = True
            elif found is not None:
                self._now += float(found[1]) * _UNITS[found[2] or "s"]
            else:
                self._unknown()

    def _echo(self, arguments: list[str]) -> None:
        if ">" in arguments or ">>" in arguments:
            at = next(number for number, word in enumerate(arguments) if word in (">", ">>"))
            self._touch(arguments[at + 1 :])
            return
        text = " ".join(word for word in arguments if word not in ("-n", "-e"))
        self._lines.append((self._now, _expanded(text, self._env)))

    def _touch(self, paths: Sequence[str]) -> None:
        for path in paths:
            moments = self._files.setdefault(path, [])
            if len(moments) % 2 == 0:
                moments.append(self._now)

    def _trap(self, arguments: Sequence[str]) -> None:
        if {"TERM", "SIGTERM", "15"} & set(arguments[1:]):
            found = re.search(r"exit\s*(\d*)", arguments[0])
            self.trap = int(found[1] or 0) if found is not None else None

    def _unknown(self) -> None:
        self._understood = False
        self._endless = True


def _commands(script: str) -> Iterator[tuple[str, str]]:
    """Split a script into commands with their preceding operator. A loop is one command."""
    separator, pending = "", ""
    for part in re.split(r"(&&|\|\||;|\n)", script):
        if part in ("&&", "||", ";", "\n") and not _is_open(pending):
            if pending.strip():
                yield separator, pending.strip()
                separator = part
            pending = ""
        else:
            pending += part
    if pending.strip():
        yield separator, pending.strip()


def _is_open(text: str) -> bool:
    """Return whether the text ends inside a loop or a quoted string."""
    words = re.findall(r"\b(?:while|done)\b", text)
    quotes = text.count("'") % 2 == 1 or text.count('"') % 2 == 1
    return quotes or words.count("while") > words.count("done")


def _expanded(text: str, env: Mapping[str, str], *, only_parentheses: bool = False) -> str:
    """Expand ``$(NAME)`` as the kubelet does, or ``$NAME`` and ``${NAME}`` as a shell does."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2] or found[3]
        if bool(found[1]) is not only_parentheses:
            return found[0]
        return env.get(name, found[0] if only_parentheses else "")

    return _VARIABLE.sub(value, text)


def answer_of(command: Sequence[str], program: Program, seconds: float) -> tuple[bool, float]:
    """Return whether a command run in the container succeeds at that time, and until when the result holds.

    Checks for files are answered from the files that the program touches. A command that cannot be interpreted
    succeeds.
    """
    words = list(command)
    name = words[0].rpartition("/")[2] if words else ""
    if name in _SHELLS and len(words) > 2:
        try:
            words = shlex.split(words[2])
        except ValueError:
            return True, NEVER
        name = words[0] if words else ""
    if name in ("false", "exit"):
        return name == "exit" and words[1:2] in ([], ["0"]), NEVER
    if name not in ("test", "[", "cat", "stat", "ls"):
        return True, NEVER
    for word in words[1:]:
        if (found := program.has_file(word, seconds)) is not None:
            return (not found[0], found[1]) if "!" in words else found
    # The program does not touch the file: assume the image contains it, unless it is in a scratch folder.
    is_there = not any(word.startswith(_SCRATCH) for word in words[1:])
    return is_there is ("!" not in words), NEVER


# On a simulated node, a container behaves as its command implies, unless the Pod or a test overrides this behavior.
#
# A Pod overrides it with an annotation, keyed by container (``*``: all). Times are in seconds since the container
# started:
#
#     sandbox.pykruise.io/behaviour: '{"main": {"readyAfter": 3, "exitAfter": 60, "exitCode": 1}}'

BEHAVIOUR: Final = "sandbox.pykruise.io/behaviour"
"""Pod annotation with the behavior of the Pod's containers as JSON; see :class:`Script`."""

UNREADY: Final = "sandbox.pykruise.io/unready"
"""Pod annotation for tests and demonstrations: comma-separated names of containers to report as not ready."""

CRASH: Final = "sandbox.pykruise.io/crash"
"""Pod annotation: comma-separated names of containers to crash now. The kubelet removes it after the crash."""


class Script(Struct, frozen=True):
    """Entry for one container in the annotation. Times are in seconds; unset fields follow from the command."""

    #: Duration of the image pull, and the error it fails with.
    pull_seconds: float | None = None
    pull_error: str = ""
    start_seconds: float | None = None
    stop_seconds: float | None = None
    #: When the container's probes start and stop succeeding.
    started_after: float = 0.0
    ready_after: float = 0.0
    ready_until: float = NEVER
    alive_until: float = NEVER
    #: When the container exits by itself, and its exit code.
    exit_after: float | None = None
    exit_code: int = 0
    #: Lines printed at the start.
    log: tuple[str, ...] = ()


UNSAID: Final = Script()


class BehaviourError(ValueError):
    """The annotation is invalid."""


_decode = msgspec.json.Decoder(dict[str, Script]).decode


@lru_cache(maxsize=256)
def scripts(annotation: str) -> Mapping[str, Script]:
    """Parse the annotation into scripts by container name. Raises BehaviourError."""
    if not annotation:
        return {}
    try:
        return _decode(annotation)
    except msgspec.MsgspecError as error:
        raise BehaviourError(f"annotation {BEHAVIOUR}: {error}") from None


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds a container takes to start, to restart with another image, to stop, and to pull its image."""

    start: float = 0.0
    restart: float = 0.0
    stop: float = 0.0
    pull: float = 0.0


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Everything known about a container's run before it starts."""

    program: Program
    script: Script = UNSAID
    pull_error: str = ""

    @property
    def ends(self) -> float:
        """Return the seconds after which the container exits by itself."""
        return self.program.ends if self.script.exit_after is None else self.script.exit_after

    @property
    def code(self) -> int:
        """Return its exit code."""
        return self.program.code if self.script.exit_after is None else self.script.exit_code


#: Returns the script of a container for a test or simulation; None leaves it to the annotation.
Scripts: TypeAlias = Callable[[Pod, Container], Script | None]


def behaviour_of(
    pod: Pod, container: Container, env: Mapping[str, str], decide: Scripts | None = None, *, init: bool = False
) -> Behaviour:
    """Return the behavior of a container. An invalid annotation is ignored; see ``script_error``."""
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
    """Return the error in the Pod's annotation, or ""."""
    try:
        scripts(pod.metadata.annotations.get(BEHAVIOUR, ""))
    except BehaviourError as error:
        return str(error)
    return ""


def _is_job(pod: Pod, container: Container, init: bool) -> bool:
    """Return whether a container without a predictable command is assumed to run to completion."""
    if init:
        return container.restart_policy != "Always"
    return pod.spec.restart_policy != "Always" and pod.metadata.controller is not None


def unreachable(image: str) -> str:
    """Return why the image cannot be pulled, or "". Registries in ``.invalid`` do not exist (RFC 2606)."""
    parsed = parse_image(image)
    host = parsed.repository.partition("/")[0].partition(":")[0] if parsed is not None else ""
    if not host.endswith(".invalid"):
        return ""
    return f'failed to resolve reference "{image}": lookup {host}: no such host'
