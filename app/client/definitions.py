"""Where the models of the client are served."""

from __future__ import annotations

from functools import cache

from app.api.kind import KindDefinition
from app.api.model import KubeObject
from app.manager.slices import kinds


@cache
def definition(model: type[KubeObject]) -> KindDefinition:
    """The kind whose stored version is this model. Raises TypeError for another class."""
    found = next((kind for kind in kinds() if kind.hub.model is model), None)
    if found is None:
        raise TypeError(f"{model.__name__} is no kind of pykruise, or not the version that is stored")
    return found
