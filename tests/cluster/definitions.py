"""Deletion of CustomResourceDefinitions, which an API server may delay for minutes."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable

from tests.cluster.controlplane import ControlPlane
from tests.cluster.errors import ClusterError
from tests.deadline import Deadline

_DEADLINE_SECONDS = 120.0


def delete_definitions(control_plane: ControlPlane, names: Iterable[str]) -> None:
    """Delete these definitions with all their objects, and wait until they are gone.

    Right after a definition changes, an API server cannot list its objects ("storage is (re)initializing") and retries
    with an increasing delay. Changing the definition again makes it retry at once.
    """
    wanted = set(names)
    control_plane.kubectl("delete", "crd", "--ignore-not-found", "--wait=false", *sorted(wanted))
    deadline = Deadline(_DEADLINE_SECONDS)
    for attempt in itertools.count():
        items = json.loads(control_plane.kubectl("get", "crd", "-o", "json").stdout)["items"]
        left = sorted(wanted & {item["metadata"]["name"] for item in items})
        if not left:
            return
        if deadline.passed():
            raise ClusterError(f"not deleted within {_DEADLINE_SECONDS:g} s: {', '.join(left)}")
        if attempt % 4 == 3:
            control_plane.kubectl("annotate", "crd", "--overwrite", *left, f"touched={attempt}", check=False)
        time.sleep(0.25)
