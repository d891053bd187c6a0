"""The agent of one node: its watches and its controllers. [KD-3, KD-5]"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from app.api import names
from app.daemon.credentials import Keyring
from app.daemon.cri.types import Runtime
from app.daemon.image_puller import MAX_WORKERS, SHARE_PERCENT, ImagePuller
from app.daemon.meta_reporter import MetaReporter
from app.daemon.metrics import Metrics
from app.daemon.objects import (
    NODE_IMAGES,
    NODE_POD_PROBES,
    RECREATE_REQUESTS,
    NodeImage,
    NodePodProbe,
    RecreateRequest,
    decode_node_image,
    decode_node_pod_probe,
    decode_recreate_request,
)
from app.daemon.prober import Prober
from app.daemon.probes_and_hooks import Network, Stopper
from app.daemon.recreator import BY_POD, Recreator, pods_of
from app.kube.client import Client
from app.kube.concurrency import task_group
from app.kube.controller import Controller
from app.kube.events import EventRecorder
from app.kube.objects import Pod, decode_pod
from app.kube.reflector import Reflector
from app.kube.resources import PODS
from app.kube.store import Store

logger = logging.getLogger(__name__)

#: Seconds without a NodeImage before the agent logs a warning.
_UNKNOWN_NODE_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Features:
    """Parts of the agent that feature gates turn on or off. [KD-3]"""

    probes: bool = True
    pods: bool = True
    env_from_metadata: bool = True


class Agent:
    """All components of one node's agent. Start ``run`` as a task and cancel the task to stop."""

    def __init__(
        self,
        node: str,
        client: Client,
        runtimes: Sequence[Runtime],
        rng: Random,
        *,
        keyrings: Sequence[Keyring] = (),
        features: Features | None = None,
        max_pulls: int = MAX_WORKERS,
        image_share: int = SHARE_PERCENT,
        metrics: Metrics | None = None,
        network: Network | None = None,
        watches: bool = True,
    ) -> None:
        """Create the agent. The first of ``runtimes`` serves images and probes. With ``watches=False``, the caller
        fills the stores. [KD-12]"""
        features = features if features is not None else Features()
        network = network if network is not None else Network()
        self.node = node
        self._clock = client.clock
        self.node_images: Store[NodeImage] = Store()
        self.requests: Store[RecreateRequest] = Store({BY_POD: pods_of})
        self.node_pod_probes: Store[NodePodProbe] = Store()
        self.pods: Store[Pod] | None = Store() if features.pods else None
        own = f"metadata.name={node}"
        # Watch only the node's own objects. [KD-5]
        reflector = partial(Reflector, client, rng=rng, ends_when_restored=True)
        self._reflectors: list[Reflector[Any]] = [
            reflector(NODE_IMAGES, self.node_images, decode=decode_node_image, field_selector=own),
            reflector(
                RECREATE_REQUESTS,
                self.requests,
                decode=decode_recreate_request,
                label_selector=f"{names.CRR_NODE_NAME}={node},{names.CRR_ACTIVE}=true",
            ),
        ]
        recorder = {
            part: EventRecorder(client, f"kruise-daemon-{part}", instance=node)
            for part in ("imagepuller", "crr", "podprobe")
        }
        controller = partial(
            Controller, clock=client.clock, metrics=metrics, queue_metrics=metrics, sync_timeout=float("inf")
        )
        stopper = Stopper(client.clock, recorder["crr"], network)
        self.puller = ImagePuller(
            node,
            self.node_images,
            client,
            runtimes[0],
            recorder["imagepuller"],
            keyrings,
            rng,
            max_workers=max_pulls,
            share=image_share,
            controller=controller,
        )
        self.recreator = Recreator(self.requests, client, runtimes, stopper, self.pods, controller=controller)
        self.prober: Prober | None = None
        self.reporter: MetaReporter | None = None
        if features.probes:
            self._reflectors.append(
                reflector(NODE_POD_PROBES, self.node_pod_probes, decode=decode_node_pod_probe, field_selector=own)
            )
            self.prober = Prober(
                node,
                self.node_pod_probes,
                client,
                runtimes[0],
                recorder["podprobe"],
                rng,
                self.pods,
                network=network,
                controller=controller,
            )
        if self.pods is not None:
            on_node = f"spec.nodeName={node}"
            self._reflectors.append(reflector(PODS, self.pods, decode=decode_pod, field_selector=on_node))
            self.reporter = MetaReporter(
                self.pods,
                client,
                runtimes,
                stopper,
                env_from_metadata=features.env_from_metadata,
                controller=controller,
            )
        self._recorders = list(recorder.values())
        if metrics is not None:
            metrics.observe(controller.queue for controller in self.controllers)
        if not watches:
            self._reflectors.clear()

    @property
    def controllers(self) -> list[Controller]:
        found = [self.puller.controller, self.recreator.controller]
        if self.prober is not None:
            found += [self.prober.controller, self.prober.teller]
        if self.reporter is not None:
            found += [self.reporter.controller, self.reporter.restarter]
        return found

    def failing(self) -> str:
        """Return a description of the first failing check; '' if the agent is healthy. [KD-4]"""
        checks = {
            "nodeImageInformerSynced": self.node_images.ready,
            "crrInformerSynced": self.requests.ready,
            "nodePodProbeInformerSynced": self.node_pod_probes.ready or self.prober is None,
        }
        return next((f"{name} has not synced yet" for name, ready in checks.items() if not ready), "")

    async def run(self) -> None:
        """Run until canceled. Raises ``StorageRestored`` if the agent must be restarted."""
        async with task_group() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run(), name=f"reflector {reflector.resource.kind}")
            for recorder in self._recorders:
                tasks.create_task(recorder.run(), name="events")
            tasks.create_task(self.puller.run(), name="image puller")
            tasks.create_task(self.recreator.run(), name="recreator")
            if self.prober is not None:
                tasks.create_task(self.prober.run(), name="prober")
            if self.reporter is not None:
                tasks.create_task(self.reporter.run(), name="container meta")
            tasks.create_task(self._warn_of_unknown_node(), name="unknown node")

    async def _warn_of_unknown_node(self) -> None:
        await self.node_images.wait_until_ready()
        await self._clock.sleep(_UNKNOWN_NODE_SECONDS)
        if not len(self.node_images):
            logger.warning(
                "NodeImage %s does not exist: check that the manager runs and that NODE_NAME names a Ready node",
                self.node,
            )
