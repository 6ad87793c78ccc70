"""Random faults on every engine: after each comes the unbroken run or a named error, and nothing is left behind.

``make torture`` runs the long form, ``python -m tests.torture --help`` says what can be chosen.
"""
