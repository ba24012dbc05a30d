"""Saved predictions of any model: one call, and the command line."""
