"""What the managers of a simulation are given to be watched by."""

from __future__ import annotations

from app.pods.passes import PassObserver
from app.slices import Provides, Slice
from tests.simulation.passes import Observer

SLICE = Slice(name="observed", provides=(Provides(PassObserver, lambda _context: Observer()),))
