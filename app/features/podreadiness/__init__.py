"""Pod readiness: adds the readiness gate ``KruisePodReady`` to new Pods and sets its condition."""
