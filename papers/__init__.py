"""The experiments of the four papers, run with the library: `python -m papers NAME`."""

import warnings

from privsketch._base.errors import PrivsketchWarning

# Budgets that hide nothing, to see what is left without noise, are meant here.
warnings.filterwarnings("ignore", category=PrivsketchWarning)
