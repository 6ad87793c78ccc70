"""The same fit between owners of data, on Flower: no row leaves its site.

``owner`` is a site's half: what it tells, and what it refuses. ``agree`` makes one list of columns, categories and
classes of what the sites have. ``over`` is the coordinator's half. ``rehearsal`` runs both on one machine, as real
processes with TLS and keys. May import from glm and engines/federation.
"""
