"""Controllers for PodProbeMarkers, NodePodProbes and liveness probes."""
