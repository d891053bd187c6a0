"""Launch priority step of Pod admission: adds the barrier env to every container after sidecars are injected."""

from __future__ import annotations

from app.api import names
from app.features.launchpriority.plan import barrier_env, generated_name, requested_priorities
from app.kube.admission import Denied, Review
from app.kube.hashes import Random, random_suffix
from app.kube.validation import DNS1123_SUBDOMAIN_MAX_LENGTH
from app.pods.admission import MutatorOrder
from app.pods.admission_draft import PodDraft, PodRefusedError


class LaunchPriorityStep:
    """Applies launch priorities to one Pod. ``random`` is used for the suffixes of generated names. [PW-11 … PW-15]"""

    order = MutatorOrder.START_ORDER

    def __init__(self, random: Random) -> None:
        self._random = random

    def __call__(self, draft: PodDraft, review: Review) -> Denied | None:  # noqa: ARG002
        """Append the barrier env if the containers are ordered."""
        containers = draft.containers
        if len(containers) < 2:
            return None
        annotation = draft.annotations.get(names.CONTAINER_LAUNCH_PRIORITY)
        if annotation is not None:
            draft.refuse_oversized_annotations()
        try:
            priorities = requested_priorities(containers, annotation)
        except PodRefusedError as error:
            raise PodRefusedError(f"{draft.display}: {error.message}", error.code) from error
        if priorities is None:
            return None
        if len(draft.name) > DNS1123_SUBDOMAIN_MAX_LENGTH:
            return None  # the API server rejects such a name
        if not draft.name:
            if not draft.generate_name:
                return None  # the API server rejects a Pod without a name
            # The ConfigMap's name is derived from the Pod's. [PM-144]
            draft.set_name(generated_name(draft.generate_name, random_suffix(self._random)), "PM-144")
        for index, priority in enumerate(priorities):
            draft.append_env(index, barrier_env(draft.name, priority), "PM-142")
        return None
