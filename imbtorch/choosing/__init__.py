"""The choice of an epoch, a model or a threshold, and what it is worth against baselines."""
