"""The same fit between owners of data, on Flower: no row leaves its site.

``fit_site`` is a site's half, ``fit_coordinator`` the coordinator's, ``common_columns`` makes one list of what the
sites have. ``rehearsal`` runs all on one machine, as processes with TLS and keys. May import from glm and
engines/federation.
"""
