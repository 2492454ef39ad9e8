# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .doubts import measured_excess as measured_excess
from .doubts import unfound_clusters as unfound_clusters
from .doubts import unsettled_centers as unsettled_centers
from .method import cluster as cluster
from .plan import RADIUS_BINS as RADIUS_BINS
from .plan import Facts as Facts
from .plan import share_weights as share_weights
from .rounds import Measured as Measured
