"""The paper's appendix: experiments on MNIST, one module each.

May import from every folder up to pep, and from paper/machinery.
"""
