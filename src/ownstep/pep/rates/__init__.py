"""Rates that hold for every number of rounds: one round of the method on a state that may be anything.

``lift`` (one round on a symbolic state) -> ``lyapunov`` (the small semidefinite program) -> ``rate`` (the smallest
rate) and ``neighbourhood`` (where a method ends). May import from pep/networks.
"""
