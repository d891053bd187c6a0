"""Deletion protection: objects with the label ``policy.kruise.io/delete-protection`` cannot be deleted by mistake.

``table`` says which kinds, ``plan`` decides, ``admission`` asks and answers, ``lookups`` looks into the cluster,
``refusals`` counts and records, ``policies`` hands the plain cases to the API server itself.
"""
