"""A site: answers with its gradient, already multiplied by the coefficient it was sent, and its loss.

In deployment Flower starts this in a process of its own for every message. The data comes from `site.py`: the one
beside this file, or the owner's own, named by `flower-supernode --node-config 'site-file="/path/site.py"'`.
"""

from ownstep.engines.federation import site_app

from .site import open_site

app = site_app(open_site)
