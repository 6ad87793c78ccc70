from typing import Any

from .base import Kind as Kind
from .base import Smoothness as Smoothness
from .hessian import Curvature as Curvature
from .hessian import Snapshots as Snapshots
from .hessian import along as along
from .hessian import power as power
from .sampled import Region as Region
from .sampled import Sampled as Sampled
from .sampled import differences as differences
from .spectrum import auto as auto
from .spectrum import exact as exact
from .spectrum import trace as trace

MEASURES: tuple[str, ...]

def measure(how: str, problem: Any) -> Smoothness: ...
