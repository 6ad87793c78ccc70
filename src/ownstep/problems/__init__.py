"""What is minimised: f(x) = sum_i w_i f_i(x) over the devices that hold the data.

``base`` is the contract; ``linear/`` has logistic regression, softmax and least squares, ``network/`` any torch module;
``reference`` finds f*. The public names stand in ``__init__.pyi``. May import from data and partition.
"""

from ownstep.support.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
