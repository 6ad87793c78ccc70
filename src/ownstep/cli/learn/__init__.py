"""Commands that work on data: ``plan``, ``fit``, ``predict``, ``run``, ``compare``, ``train``, ``data``, ``demo``."""
