"""Readiness ``KruisePodReady``: how our controllers take a Pod out of service, and how new Pods come into it.

``admission`` puts the readiness gate into new Pods, ``controller`` sets their condition once, and ``reconcile`` lets
whoever wants a Pod not ready say so under a key of its own. ``plan`` holds the rules.
"""

from app.pods.readiness.admission import ReadinessGateStep

__all__ = ["ReadinessGateStep"]
