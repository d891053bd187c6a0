"""Restarting containers: what the ContainerRecreateRequests of the node's Pods ask for."""
