"""Worst cases of devices that keep vectors of their own: over networks, with local steps, with absent devices.

``spectral`` (the class of networks) -> ``symbols`` and ``follow`` (the method on symbolic vectors) -> ``program`` (the
conditions) -> ``dual`` (the solver and the check of its answer) -> ``enclose`` (the bound). May import from pep/trace,
pep/conditions and pep/solve.
"""
