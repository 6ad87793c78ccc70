"""Commands about worst cases: ``pep``, ``tune`` and ``check``."""
