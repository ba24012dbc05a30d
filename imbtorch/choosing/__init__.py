"""Choices of epochs and models, comparisons, runs over seeds, and the numbers of samples that they need."""
