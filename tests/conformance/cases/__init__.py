"""The conformance cases, by subject."""

from tests.conformance.cases import (
    admitting,
    applying,
    customs,
    deleting,
    discovering,
    patching,
    policing,
    printing,
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
    "discovering": discovering.CASES,
    "patching": patching.CASES,
    "policing": policing.CASES,
    "printing": printing.CASES,
    "reading": reading.CASES,
    "reviewing": reviewing.CASES,
    "subresources": subresources.CASES,
    "watching": watching.CASES,
    "writing": writing.CASES,
}
