"""Commands about worst cases: ``pep``, ``tune`` and ``check``.

May import from every folder and from the modules of cli/ above.
"""
