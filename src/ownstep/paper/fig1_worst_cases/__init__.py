"""Fig. 1 and Theorem 1: exact worst cases, one module per panel.

May import from every folder up to pep, and from paper/machinery.
"""
