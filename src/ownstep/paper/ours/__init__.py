"""What the paper does not have: where its speed-ups come from, how good its estimates are, and what goes beyond it.

May import from every folder up to pep, from paper/machinery and from the experiments it judges.
"""
