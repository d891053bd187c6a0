"""The conformance cases, by subject."""

from tests.conformance.cases import applying, deleting, patching, reading, writing
from tests.conformance.steps import Case

BY_SUBJECT: dict[str, list[Case]] = {
    "applying": applying.CASES,
    "deleting": deleting.CASES,
    "patching": patching.CASES,
    "reading": reading.CASES,
    "writing": writing.CASES,
}
