"""Fig. 1 and Theorem 1: exact worst cases, one module per panel."""
