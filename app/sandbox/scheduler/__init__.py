"""The scheduler of the sandbox: ``filters`` decide purely where a Pod may run, ``scheduler`` binds it there."""

from app.sandbox.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
