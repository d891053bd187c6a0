"""The AdvancedCronJob controller: what it watches, and what a change concerns (ACJ-20)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.api.advancedcronjob import ADVANCED_CRON_JOB, AdvancedCronJob
from app.api.broadcastjob import BROADCAST_JOB, BroadcastJob
from app.api.imagepull import IMAGE_LIST_PULL_JOB, ImageListPullJob
from app.kube.controller import Watch
from app.kube.resources import ObjectKey
from app.kube.store import Change, key_of
from app.slices import JOBS, ControllerContext, Reconciling, Watched
from app.workloads.advancedcronjob.reconcile import BY_CRON, AdvancedCronJobReconciler, Caches, cron_keys

NAME: Final = "advancedcronjob-controller"
_MADE: Final = {BY_CRON: cron_keys}


CRONS: Final = Watched.kind(ADVANCED_CRON_JOB, AdvancedCronJob)
JOBS_MADE: Final = JOBS.indexed(**_MADE)
BROADCAST_JOBS: Final = Watched.kind(BROADCAST_JOB, BroadcastJob, **_MADE)
IMAGE_JOBS: Final = Watched.kind(IMAGE_LIST_PULL_JOB, ImageListPullJob, **_MADE)
WATCHED: Final = (CRONS, JOBS_MADE, BROADCAST_JOBS, IMAGE_JOBS)


def spec_changes(change: Change[AdvancedCronJob]) -> Iterable[ObjectKey]:
    """The changed object itself, but for a change of its status alone."""
    old, new = change.old, change.new
    if old is not None and new is not None and new.is_but_for_status(old):
        return ()
    return (key_of(change.object),)


def advancedcronjob_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    caches = Caches(*map(context.stores, WATCHED))  # type: ignore[arg-type]
    reconciler = AdvancedCronJobReconciler(context.client, caches, context.events)
    return Reconciling(
        reconciler,
        [
            Watch(caches.jobs, reconciler.keys_for_child),
            Watch(caches.broadcast_jobs, reconciler.keys_for_child),
            Watch(caches.image_jobs, reconciler.keys_for_child),
            Watch(caches.crons, spec_changes),
        ],
    )
