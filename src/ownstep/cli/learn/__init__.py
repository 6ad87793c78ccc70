"""Commands that work on data: ``plan``, ``fit``, ``predict``, ``run``, ``compare``, ``train``, ``data``, ``demo``.

May import from every folder and from the modules of cli/ above.
"""
