"""Admission: the server's own plugins, then the webhooks that are registered with it."""

from __future__ import annotations

from app.sandbox.apiserver.core import Core
from app.sandbox.apiserver.plugins import Plugins
from app.sandbox.apiserver.writing import Attributes


class AdmissionChain:
    """What every write passes: it may be changed first, and is judged at the end."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._plugins = Plugins(core)

    def concerns(self, _attributes: Attributes) -> bool:
        """The plugins look at everything."""
        return True

    async def mutate(self, attributes: Attributes) -> None:
        """Let plugins and mutating webhooks change the object."""
        self._plugins.mutate(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Let validating webhooks refuse."""
