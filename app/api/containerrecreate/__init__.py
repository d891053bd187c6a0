"""ContainerRecreateRequest: containers of a Pod restarted in place. Fields, defaults, conversion, validation."""

from app.api.containerrecreate.definition import CONTAINER_RECREATE_REQUEST
from app.api.containerrecreate.types import (
    ContainerRecreateRequest,
    ContainerRecreateRequestSpec,
    ContainerRecreateRequestStatus,
    ContainerRecreateRequestV1Alpha1,
    ContainerRecreateState,
    ContainerSnapshot,
    RecreateContainer,
    RecreateStrategy,
    StatusContext,
)

__all__ = [
    "CONTAINER_RECREATE_REQUEST",
    "ContainerRecreateRequest",
    "ContainerRecreateRequestSpec",
    "ContainerRecreateRequestStatus",
    "ContainerRecreateRequestV1Alpha1",
    "ContainerRecreateState",
    "ContainerSnapshot",
    "RecreateContainer",
    "RecreateStrategy",
    "StatusContext",
]
