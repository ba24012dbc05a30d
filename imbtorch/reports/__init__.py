"""Reports of many measures, and their results."""
