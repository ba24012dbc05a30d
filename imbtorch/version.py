"""Version of the package."""

__version__ = "0.8.0"
