"""Records a real API server's errors for template_cases: ``python -m tests.api.record_template_answers``.

The tests compare the structural check with the records in tests/data/podtemplates.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.api.template_cases import CASES
from tests.cluster.controlplane import ControlPlane

ANSWERS = Path(__file__).parents[1] / "data" / "podtemplates" / "answers.json"


def ask(control_plane: ControlPlane, case: dict[str, Any]) -> list[str]:
    """Return the errors of the case, without duplicates and the path of the template."""
    spec = {**case, "terminationGracePeriodSeconds": 2**31 - 1}
    body = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"generateName": "case-"},
        "template": {"spec": spec},
    }
    code, answer = control_plane.request("POST", "/api/v1/namespaces/default/podtemplates?dryRun=All", body)
    if code == 201:
        return []
    assert code == 422, answer
    causes = answer["details"]["causes"]
    return list(dict.fromkeys(f"{c['field'].removeprefix('template.')}: {c['message']}" for c in causes))


def main() -> None:
    with ControlPlane() as control_plane:
        answers = {name: ask(control_plane, case) for name, case in CASES.items()}
    ANSWERS.parent.mkdir(exist_ok=True)
    ANSWERS.write_text(json.dumps(answers, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
