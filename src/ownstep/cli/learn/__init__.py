"""Commands that work on data: ``plan``, ``fit``, ``predict``, ``run``, ``compare``, ``train``, ``data``, ``demo``.

May import from every room and from the modules of cli/ above.
"""
