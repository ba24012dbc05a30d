"""Version of the package."""

__version__ = "0.6.0"
