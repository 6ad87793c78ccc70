"""What the experiments share: ``runner`` runs and resumes them, ``bootstrap`` has the intervals.

``curves``, ``contest`` and ``trend`` judge, ``neural`` and ``mnist_problem`` set problems up. May import from every
folder up to pep.
"""
