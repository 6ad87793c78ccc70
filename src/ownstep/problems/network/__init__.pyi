from .batches import PerDevice as PerDevice
from .batches import Pooled as Pooled
from .batches import Stratified as Stratified
from .inputs import Blocks as Blocks
from .penalties import SquaredL2 as SquaredL2
from .penalties import TensorNorms as TensorNorms
from .problem import Network as Network
