"""What methods with a line search share: the search itself, one trial per exchange, and the memory of L-BFGS."""
