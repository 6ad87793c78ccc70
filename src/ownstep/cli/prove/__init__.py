"""Commands about worst cases: ``pep``, ``tune`` and ``check``.

May import from every room and from the modules of cli/ above.
"""
