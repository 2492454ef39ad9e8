# Engines, and what authors of engines in other packages need.
from .cuda import Cuda as Cuda
from .dask import Dask as Dask
from .engine import Engine as Engine
from .pool import Pool as Pool
from .spark import Spark as Spark
from .threads import Threads as Threads
from .work import Work as Work
from .work import add_outcomes as add_outcomes
from .work import part_sums as part_sums
