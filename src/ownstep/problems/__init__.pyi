from .base import Problem as Problem
from .linear import (
    BinaryLogistic as BinaryLogistic,
)
from .linear import (
    LeastSquares as LeastSquares,
)
from .linear import (
    LinearModel as LinearModel,
)
from .linear import (
    MultinomialLogistic as MultinomialLogistic,
)
from .linear import (
    Poisson as Poisson,
)
from .linear import (
    ReferenceLogistic as ReferenceLogistic,
)
from .linear import (
    logistic_regression as logistic_regression,
)
from .network import (
    Blocks as Blocks,
)
from .network import (
    Network as Network,
)
from .network import (
    PerDevice as PerDevice,
)
from .network import (
    Pooled as Pooled,
)
from .network import (
    SquaredL2 as SquaredL2,
)
from .network import (
    Stratified as Stratified,
)
from .network import (
    TensorNorms as TensorNorms,
)
from .reference import Optimum as Optimum
from .reference import optimum as optimum
