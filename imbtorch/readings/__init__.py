"""Measures as reports read them from counts."""
