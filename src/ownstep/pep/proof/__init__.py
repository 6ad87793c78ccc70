"""Last step of a worst case: the proof in rational numbers (``certify``) and its stand-alone checker (``check``).

``certificate`` holds the solver's multipliers. ``check`` imports the standard library alone, the rest may import
from pep/solve.
"""
