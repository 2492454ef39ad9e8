"""Feature maps: what a record becomes, in integers, and how much one record can matter."""

from privsketch.features.maps import FEATURE_MAPS, FeatureMap, feature_map

__all__ = ["FEATURE_MAPS", "FeatureMap", "feature_map"]
