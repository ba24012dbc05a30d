"""Intervals, comparisons and planning: how sure a value is."""
