"""Counting: tasks read batches, kernels add them to flat counts."""
