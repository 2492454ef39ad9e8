"""Partition trees of Balcan et al. (2017), with corrections."""
