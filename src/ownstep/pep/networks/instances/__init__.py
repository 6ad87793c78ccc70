"""Lower ends of worst cases over networks: real functions, real matrices, and the real method's run on them.

``lower_search`` tries networks: ``mirrored`` finds those that do what the solver's answer asks of W, ``replay``
recovers functions, ``exact_replay`` runs the method in exact numbers. May import from what stands beside this folder.
"""
