"""The conformance cases, by subject."""

from tests.conformance.cases import reading, writing
from tests.conformance.steps import Case

BY_SUBJECT: dict[str, list[Case]] = {
    "reading": reading.CASES,
    "writing": writing.CASES,
}
