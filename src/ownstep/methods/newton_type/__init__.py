"""Rivals of second order over devices: each sends more than a gradient, or solves more than its own step.

One file per method. May import from plan, methods/own and methods/search.
"""
