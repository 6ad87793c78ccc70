"""What methods with a line search share: the search itself, one trial per exchange, and the memory of L-BFGS.

``wolfe`` is the search, ``searched`` the ask and tell around it, ``pairs`` the memory. May import from plan.
"""
