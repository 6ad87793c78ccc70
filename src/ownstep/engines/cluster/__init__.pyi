from . import torchrun as torchrun
from .engine import deal as deal
from .engine import join as join
from .engine import run as run
from .engine import share as share
from .ranks import Ranks as Ranks
from .shared import Shared as Shared
