"""Methods without a server: devices on a graph that average with their neighbours.

``peers`` is what they share, ``graphs`` and ``mixing`` are who talks to whom. May import from plan.
"""
