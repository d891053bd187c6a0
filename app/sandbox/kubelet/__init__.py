"""Kubelet of a simulated node: decides what happens to a Pod from its spec and a script."""
