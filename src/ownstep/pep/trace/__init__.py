"""First step of a worst case: run the method on symbolic vectors and read off its coefficients.

``symbolic`` does that, ``symmetry`` finds equal devices, ``scales`` the units. May import from plan and methods.
"""
