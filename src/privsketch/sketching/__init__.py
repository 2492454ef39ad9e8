"""Records to a private sketch, sketches to their sum, and the engines that compute."""

from privsketch.sketching import engines as engines
