"""What all parts of the server share: clock, randomness, storage, the registry of resources."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from app.kube.clock import Clock, rfc3339
from app.sandbox.apiserver import status
from app.sandbox.apiserver.kinds import Registry, ResourceType
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.storage import Collection, Entry, Storage

#: Letters of generated names: no vowels and nothing that looks like something else.
NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED_BASE: Final = 58


@dataclass
class Core:
    """The shared state of one server."""

    clock: Clock
    rng: Random
    storage: Storage = field(default_factory=Storage)
    registry: Registry = field(default_factory=Registry.built_in)
    #: The last second that was written out, and how.
    _second: int = -1
    _text: str = ""

    def collection(self, resource: ResourceType) -> Collection:
        """Where the objects of a resource are, whatever the version."""
        return self.storage.collection(resource.key)

    def named(self, qualified: str) -> Collection:
        """A built-in collection by its name (``pods``, ``replicasets.apps``)."""
        return self.storage.collection(qualified)

    def entry(self, call: Call) -> Entry:
        """The object a call names. Refuses where there is none."""
        found = self.collection(call.resource).objects.get(call.key)
        if found is None:
            raise status.not_found(call.resource, call.name)
        return found

    def now(self) -> str:
        """The time as objects carry it."""
        moment = self.clock.now()
        second = int(moment.timestamp())
        if second != self._second:
            self._second, self._text = second, rfc3339(moment)
        return self._text

    def new_uid(self) -> str:
        """A random (version 4) UUID, the next of this server's history."""
        bits = self.rng.getrandbits(128)
        bits = bits & ~(0xF << 76) & ~(0x3 << 62) | (0x4 << 76) | (0x2 << 62)
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def generated_name(self, base: str) -> str:
        """``base`` and five random letters."""
        return base[:_MAX_GENERATED_BASE] + "".join(self.rng.choices(NAME_LETTERS, k=5))
