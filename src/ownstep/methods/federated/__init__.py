"""Methods in which devices take several own steps between two rounds and the server steps along their mean.

``fedopt`` is what they share; one file per method. May import from plan.
"""
