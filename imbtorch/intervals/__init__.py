"""Intervals of any function of counts, and the baselines that a value is compared with."""
