"""Readings: which measure of which counts a value is, and the tables that show values."""
