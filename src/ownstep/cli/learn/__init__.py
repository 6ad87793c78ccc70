"""Commands that work on data: ``plan``, ``run``, ``compare``, ``train``, ``data`` and ``demo``."""
