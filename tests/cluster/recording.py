"""Audit policy that logs the manager's requests with the authorizer's reasons."""

from typing import Any, Final

SERVICE_ACCOUNT: Final = "system:serviceaccount:kruise-system:kruise-manager"
#: The rules of an audit.k8s.io/v1 Policy.
RECORDING: Final[dict[str, Any]] = {
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [SERVICE_ACCOUNT]}, {"level": "None"}],
}
