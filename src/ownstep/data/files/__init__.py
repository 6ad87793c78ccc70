"""Files of your own: LIBSVM, CSV, TSV, Parquet, npz, plain or compressed, and folders with one file per device.

``stream`` opens and recognises them, ``libsvm``, ``frames`` and ``npz`` read one kind each, ``columns`` turns columns
into numbers, ``faults`` finds the line that is wrong, ``wording`` writes options as the reader knows them, and
``describe`` says what is in a file. May import from support and data.
"""

from ownstep.data.files.describe import describe
from ownstep.data.files.read import Reading, read, read_features

__all__ = ["Reading", "describe", "read", "read_features"]
