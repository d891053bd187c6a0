"""In-place update of Pods: the same Pod, other images, metadata or resources. Pure.

``eligibility`` compares two revisions and says what changes or what forbids it (:class:`UpdateSpec`), ``start`` takes a
Pod out of service and begins, ``refresh`` carries an update on, ``completion`` tells when the containers have changed.
``spec`` and ``state`` are the two annotations on the Pod in which all progress stands.

What comes out are bodies of strategic merge patches. Those of the Pod and of its status carry uid and resourceVersion
of the Pod that was looked at: a conflict means to look again.
"""

from app.pods.inplace.completion import is_update_complete, why_incomplete
from app.pods.inplace.eligibility import Blocked, InPlaceOptions, blocked_on_pod, update_spec
from app.pods.inplace.refresh import Refresh, RefreshAction, finished_annotations, refresh
from app.pods.inplace.spec import GraceError, UpdateSpec, is_in_grace
from app.pods.inplace.start import Start, start, unready_patch
from app.pods.inplace.state import InPlaceUpdateState, StateError, update_state

__all__ = [
    "Blocked",
    "GraceError",
    "InPlaceOptions",
    "InPlaceUpdateState",
    "Refresh",
    "RefreshAction",
    "Start",
    "StateError",
    "UpdateSpec",
    "blocked_on_pod",
    "finished_annotations",
    "is_in_grace",
    "is_update_complete",
    "refresh",
    "start",
    "unready_patch",
    "update_spec",
    "update_state",
    "why_incomplete",
]
