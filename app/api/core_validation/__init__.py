"""What Kubernetes would say about containers and volumes, where no API server can be asked.

A structural check with the API server's messages and paths: names, duplicates, images, ports, env, mounts, probes,
resources and the usual volume sources. It is not all of Pod validation and does not want to be: where there is an API
server, a dry run of a core PodTemplate decides, and says the rest.

Source: Kubernetes 1.34, pkg/apis/core/validation/validation.go.
"""

from app.api.core_validation.env import field_ref_errors
from app.api.core_validation.pod import pod_errors, unknown_fields
from app.api.core_validation.probes import LONGEST_GRACE_PERIOD_SECONDS

__all__ = ["LONGEST_GRACE_PERIOD_SECONDS", "field_ref_errors", "pod_errors", "unknown_fields"]
