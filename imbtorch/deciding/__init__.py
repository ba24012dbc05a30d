"""Decision rules: thresholds of scores and logit adjustments, swept on validation data."""
