# The one list of the package's public names, and the room each comes from; __init__.py loads them when first used.
from . import data as data
from . import engines as engines
from . import glm as glm
from . import methods as methods
from . import partition as partition
from . import pep as pep
from . import plan as plan
from . import plots as plots
from . import problems as problems
from . import smoothness as smoothness
from .data import (
    load as load,
)
from .engines import (
    Bernoulli as Bernoulli,
)
from .engines import (
    Bursts as Bursts,
)
from .engines import (
    Cohort as Cohort,
)
from .engines import (
    Comparison as Comparison,
)
from .engines import (
    Outages as Outages,
)
from .engines import (
    Stragglers as Stragglers,
)
from .engines import (
    TimeModel as TimeModel,
)
from .engines import (
    compare as compare,
)
from .engines import (
    price as price,
)
from .engines import (
    recommend as recommend,
)
from .engines import (
    run as run,
)
from .engines import (
    tune as tune,
)
from .history import (
    History as History,
)
from .methods import (
    DANE as DANE,
)
from .methods import (
    EXTRA as EXTRA,
)
from .methods import (
    GD as GD,
)
from .methods import (
    GIANT as GIANT,
)
from .methods import (
    ITEM as ITEM,
)
from .methods import (
    LBFGS as LBFGS,
)
from .methods import (
    NIDS as NIDS,
)
from .methods import (
    OGM as OGM,
)
from .methods import (
    SHED as SHED,
)
from .methods import (
    AdGD as AdGD,
)
from .methods import (
    At as At,
)
from .methods import (
    BarzilaiBorwein as BarzilaiBorwein,
)
from .methods import (
    DecentralisedGD as DecentralisedGD,
)
from .methods import (
    DeltaSGD as DeltaSGD,
)
from .methods import (
    FedAdagrad as FedAdagrad,
)
from .methods import (
    FedAdam as FedAdam,
)
from .methods import (
    FedAvg as FedAvg,
)
from .methods import (
    FedAvgM as FedAvgM,
)
from .methods import (
    FedDyn as FedDyn,
)
from .methods import (
    FedExP as FedExP,
)
from .methods import (
    FedLin as FedLin,
)
from .methods import (
    FedNova as FedNova,
)
from .methods import (
    FedProx as FedProx,
)
from .methods import (
    FedSPS as FedSPS,
)
from .methods import (
    FedYogi as FedYogi,
)
from .methods import (
    GradientTracking as GradientTracking,
)
from .methods import (
    HeavyBall as HeavyBall,
)
from .methods import (
    Mixing as Mixing,
)
from .methods import (
    Nesterov as Nesterov,
)
from .methods import (
    NesterovRestart as NesterovRestart,
)
from .methods import (
    Never as Never,
)
from .methods import (
    Newton as Newton,
)
from .methods import (
    NormBelow as NormBelow,
)
from .methods import (
    OwnCurvature as OwnCurvature,
)
from .methods import (
    OwnStep as OwnStep,
)
from .methods import (
    Plateau as Plateau,
)
from .methods import (
    Scaffnew as Scaffnew,
)
from .methods import (
    Scaffold as Scaffold,
)
from .methods import (
    Shrunk as Shrunk,
)
from .methods import (
    TripleMomentum as TripleMomentum,
)
from .methods import (
    mixing_matrix as mixing_matrix,
)
from .plan import (
    Devices as Devices,
)
from .plan import (
    Plan as Plan,
)
from .problems import (
    BinaryLogistic as BinaryLogistic,
)
from .problems import (
    LeastSquares as LeastSquares,
)
from .problems import (
    MultinomialLogistic as MultinomialLogistic,
)
from .problems import (
    logistic_regression as logistic_regression,
)
from .problems import (
    optimum as optimum,
)
from .smoothness import (
    Smoothness as Smoothness,
)
from .smoothness import (
    measure as measure,
)
from .support.errors import (
    InvalidInput as InvalidInput,
)
from .support.errors import (
    OwnstepError as OwnstepError,
)

__version__: str
