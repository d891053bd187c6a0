"""Probing containers: what the node's NodePodProbe asks for, and what was found out."""
