"""Lower ends of worst cases over networks: real functions, real matrices, and the real method's run on them.

``replay`` recovers functions from the solver's answer, ``mirrored`` finds networks that do what the answer asks of W,
``exact_replay`` runs the method in exact numbers.
"""
