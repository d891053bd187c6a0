"""PodProbeMarker: the node agent probes containers and the results label their Pods. Also liveness probes that respect
the workload's availability."""
