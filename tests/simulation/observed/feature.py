"""What the managers of a simulation are given to be watched by."""

from __future__ import annotations

from app.framework.feature import Feature, Provides
from app.pods.passes import PassObserver
from tests.simulation.passes import Observer

FEATURE = Feature(name="observed", provides=(Provides(PassObserver, lambda _context: Observer()),))
