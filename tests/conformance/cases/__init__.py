"""The conformance cases, by subject."""

from tests.conformance.cases import (
    admitting,
    applying,
    customs,
    deleting,
    patching,
    reading,
    reviewing,
    subresources,
    watching,
    writing,
)
from tests.conformance.steps import Case

BY_SUBJECT: dict[str, list[Case]] = {
    "admitting": admitting.CASES,
    "applying": applying.CASES,
    "customs": customs.CASES,
    "deleting": deleting.CASES,
    "patching": patching.CASES,
    "reading": reading.CASES,
    "reviewing": reviewing.CASES,
    "subresources": subresources.CASES,
    "watching": watching.CASES,
    "writing": writing.CASES,
}
