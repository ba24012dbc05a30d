"""Metrics for torchmetrics and Lightning: one state of counts, summed over all processes by one ``all_reduce``."""
