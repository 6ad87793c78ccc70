"""Third step of a worst case: solve the semidefinite program (``sdp``) and recover a worst function (``instance``).

``interpolant`` evaluates that function, ``polish`` makes it worse, ``quadratic`` is a first guess. May import from
pep/conditions.
"""
