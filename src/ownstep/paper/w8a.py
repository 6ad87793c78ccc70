"""Fig. 2."""
CLAIM = ""
