"""PodProbeMarker: probes by the node agent that mark Pods; liveness probes that respect the workload."""
