"""Operations on nodes, running Pods and namespaces: images, restarts, probes, distributed resources."""
