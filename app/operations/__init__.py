"""Operations on nodes and running Pods: images, restarts, probes."""
