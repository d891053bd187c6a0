"""Pulling images ahead of their use: what the node's NodeImage asks for, with credentials, and how far it is."""
