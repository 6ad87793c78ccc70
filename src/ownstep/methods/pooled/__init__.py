"""Methods that use the pooled gradient alone: gradient descent and its accelerated and adaptive relatives.

One file per method; ``safeguard`` is what methods with measured steps share. May import from plan.
"""
