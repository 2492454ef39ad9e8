"""`PrivateKMeans` with its options given beside other parameters, as tests like to."""

from dataclasses import fields

import privsketch as ps

OPTIONS = {field.name for field in fields(ps.KMeansOptions)}


def private_kmeans(n_clusters=3, **settings):
    """An estimator; what `KMeansOptions` knows goes there."""
    options = {name: settings.pop(name) for name in OPTIONS & settings.keys()}
    return ps.PrivateKMeans(n_clusters, options=options or None, **settings)
