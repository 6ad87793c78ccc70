"""Rivals of second order over devices: each sends more than a gradient, or solves more than its own step."""
