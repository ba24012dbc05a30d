"""Properties of measures: the tools of the papers."""
