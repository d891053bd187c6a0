"""Random Pods and SidecarSets against a slow reference: ``python -m tests.property --cases 100000``.

``generate`` makes a case from a number, ``oracle`` computes the expected answer (from the rules, without code of the
product), ``product`` returns the actual one, ``checks`` compares them and checks the patch, and ``run`` does this for
many cases.
"""
