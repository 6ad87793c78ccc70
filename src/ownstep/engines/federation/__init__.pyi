from .app import init as init
from .coordinator import Terms as Terms
from .coordinator import race as race
from .coordinator import run as run
from .secure import SecurePlus as SecurePlus
from .site import Site as Site
from .site import site_app as site_app
