"""PersistentPodStates, and what belongs to them, in few words."""

from __future__ import annotations

from typing import Any

from app.api import names
from app.features.persistentpodstate.types import PersistentPodState
from app.kube.objects import ConfigMap, ObjectMeta
from app.kube.store import Store

Json = dict[str, Any]
OWN = "kruise-system"
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
GAME = {"apiVersion": "game.kruise.io/v1alpha1", "kind": "GameServerSet", "name": "web"}
TARGET = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": "web"}


def state(name: str = "web", *, target: Json = TARGET, status: Json | None = None, **spec: Any) -> Json:
    """``required``: keys; ``preferred``: pairs of weight and keys; the rest as the fields are called."""
    required, preferred = spec.pop("required", None), spec.pop("preferred", None)
    body: Json = {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "PersistentPodState",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1"},
        "spec": {"targetRef": target, **spec},
    }
    if required is not None:
        body["spec"]["requiredPersistentTopology"] = {"keys": required}
    if preferred is not None:
        body["spec"]["preferredPersistentTopology"] = [
            {"weight": weight, "preference": {"keys": keys}} for weight, keys in preferred
        ]
    if status is not None:
        body["status"] = {"observedGeneration": 1, "podStates": status}
    return body


def annotated(short: dict[str, Any]) -> dict[str, Any]:
    keys = {
        "switch": names.AUTO_GENERATE_PERSISTENT_POD_STATE,
        "required": names.REQUIRED_PERSISTENT_TOPOLOGY,
        "preferred": names.PREFERRED_PERSISTENT_TOPOLOGY,
        "remembered": names.PERSISTENT_POD_ANNOTATIONS,
    }
    return {keys[key]: value for key, value in short.items()}


def read(body: Json) -> PersistentPodState:
    return PersistentPodState.model_validate(body)


def configuration(text: str | None) -> Store[ConfigMap]:
    """The operator's ConfigMap with this list of kinds; none without a text."""
    found: Store[ConfigMap] = Store()
    if text is not None:
        data = {names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY: text}
        metadata = ObjectMeta(name=names.CONFIGURATION_CONFIG_MAP, namespace=OWN, resource_version="1")
        found.put(ConfigMap(metadata=metadata, data=data))
    return found


GAMES = '{"workloads": [{"Group": "game.kruise.io", "version": "v1alpha1", "KIND": "GameServerSet"}]}'
