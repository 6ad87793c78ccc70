"""Worst cases of devices that keep vectors of their own: over networks, with local steps, with absent devices.

``question`` (what is asked, of a class of networks in ``spectral``) -> ``network_trace`` (the method on symbolic
vectors) -> ``program`` (the conditions) -> ``dual`` (the solver and the check of its answer) -> ``network_bound`` (both
ends; ``instances/`` has the lower one). May import from pep/trace, pep/conditions, pep/solve and pep/proof.
"""
