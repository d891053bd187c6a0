"""Arguments and effective feature gates of the previous manager and node agents. Pure. [MGR-161]"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.daemon import flags as agent
from app.framework.options import Stage
from app.manager.gates import GATES, FeatureGates, parse_gates

_FLAG: Final = "feature-gates"
_PROTECTION: Final = "ResourcesDeletionProtection"
#: OpenKruise serves this path only with the gate ResourcesDeletionProtection.
_PROTECTED_PATH: Final = "/validate-service"
#: First and last minor versions of OpenKruise that enable deletion protection by default.
_PROTECTS: Final = ((1, 4), (1, 7))
_VERSION: Final = re.compile(r":v?(\d{1,4})\.(\d{1,4})[^/]*$")
#: Gates that the node agent reads.
_OF_AGENT: Final = ("DaemonWatchingPod", "PodProbeMarkerGate", "InPlaceUpdateEnvFromMetadata")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments that a container keeps."""

    arguments: tuple[str, ...]
    #: Gates in effect.
    gates: Mapping[str, bool]
    #: Gates added to --feature-gates because their default differs in pykruise.
    added: Mapping[str, bool]

    @property
    def text(self) -> str:
        return _gates_in(self.arguments)[0]


def of_manager(container: Mapping[str, Any], configurations: Iterable[Mapping[str, Any]]) -> Arguments:
    """Return the arguments of the manager's container, and its gates in effect. Raises FeatureGateError.

    ``configurations`` are its webhook configurations. For an image without a version tag, they show what it serves.
    """
    enabled_kinds = _variable(container, "CUSTOM_RESOURCE_ENABLE")
    is_ours = list(container.get("args") or ())[:1] == ["manager"]
    defaults = {} if is_ours else _defaults(str(container.get("image", "")), configurations)

    def here(text: str, gate: str) -> bool:
        return parse_gates(text, enabled_kinds).enabled(gate)

    return _kept(container, parse_gates(_text(container), enabled_kinds, defaults), tuple(GATES), here)


def of_agent(container: Mapping[str, Any]) -> Arguments:
    """Return the arguments of the node agent's container, and its gates in effect. Raises FeatureGateError, and
    UsageError for arguments that our agent does not accept."""
    agent.options_of(_given(container))

    def here(text: str, gate: str) -> bool:
        given = agent.gates(text)
        return given.get(gate, given.get("AllBeta", True))

    return _kept(container, parse_gates(_text(container)), _OF_AGENT, here)


def agent_port(container: Mapping[str, Any]) -> int:
    """Return the port of the node agent's health checks. Raises UsageError."""
    return agent.address(agent.options_of(_given(container)).addr)[1]


def _kept(
    container: Mapping[str, Any], in_force: FeatureGates, read: Sequence[str], here: Callable[[str, str], bool]
) -> Arguments:
    """Add to the arguments each gate that would otherwise have a different value in our program."""
    given = _given(container)
    text, places = _gates_in(given)
    added: dict[str, bool] = {}
    for gate in read:  # gates that turn others off come first
        if here(_joined(text, added), gate) != in_force.values[gate]:
            added[gate] = in_force.values[gate]
    if added:
        first = min((place.start for place in places), default=len(given))
        rest = [one for index, one in enumerate(given) if not any(index in place for place in places)]
        given = [*rest[:first], f"--{_FLAG}={_joined(text, added)}", *rest[first:]]
    return Arguments(tuple(given), {gate: in_force.values[gate] for gate in read}, added)


def _joined(text: str, added: Mapping[str, bool]) -> str:
    return ",".join(filter(None, (text, *(f"{name}={str(value).lower()}" for name, value in added.items()))))


def _given(container: Mapping[str, Any]) -> list[str]:
    """Return a container's arguments without the name of our subcommand."""
    arguments = list(container.get("args") or ())
    return arguments[1:] if arguments[:1] in (["manager"], ["daemon"]) else arguments


def _text(container: Mapping[str, Any]) -> str:
    return _gates_in(_given(container))[0]


def _gates_in(arguments: Sequence[str]) -> tuple[str, list[range]]:
    """Return all values of --feature-gates, joined, and the positions of the flag and its value."""
    values, places = [], []
    for index, argument in enumerate(arguments):
        name, separator, value = argument.partition("=")
        if not name.startswith("-") or name.lstrip("-").replace("_", "-") != _FLAG:
            continue
        if not separator:
            value = next(iter(arguments[index + 1 : index + 2]), "")
        values.append(value)
        places.append(range(index, index + (1 if separator else 2)))
    return ",".join(filter(None, values)), places


def _defaults(image: str, configurations: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Return OpenKruise's defaults that may differ from ours. Gates that only we have are off in OpenKruise."""
    ours = {name: False for name, gate in GATES.items() if gate.stage is Stage.OURS}
    version = _VERSION.search(image.partition("@")[0])
    if version is None:
        protects = any(_PROTECTED_PATH in paths_of(one) for one in configurations)
    else:
        protects = _PROTECTS[0] <= (int(version[1]), int(version[2])) <= _PROTECTS[1]
    return {**ours, _PROTECTION: protects}


def paths_of(configuration: Mapping[str, Any]) -> set[str]:
    """Return the paths of a webhook configuration's entries."""
    entries = configuration.get("webhooks") or ()
    return {((one.get("clientConfig") or {}).get("service") or {}).get("path", "") for one in entries}


def _variable(container: Mapping[str, Any], name: str) -> str:
    return next((str(one.get("value", "")) for one in container.get("env") or () if one.get("name") == name), "")
