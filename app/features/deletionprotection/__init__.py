"""Deletion protection: the label ``policy.kruise.io/delete-protection`` protects objects from accidental deletion."""
