"""Methods in which every device takes its own step: Algorithm 1 (``own_step``) and what extends it.

``switch`` and ``plateau`` say when to leave the local phase; ``schedule`` holds steps written down round by round.
May import from plan and from methods/pooled.
"""
