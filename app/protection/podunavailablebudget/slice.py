"""The slice of PodUnavailableBudget."""

from __future__ import annotations

from typing import Final

from app.api.podunavailablebudget import POD_UNAVAILABLE_BUDGET
from app.slices import Slice

SLICE: Final = Slice(name="podunavailablebudget", kinds=(POD_UNAVAILABLE_BUDGET,))
