"""Deletion protection: objects with the label ``policy.kruise.io/delete-protection`` cannot be deleted by mistake."""
