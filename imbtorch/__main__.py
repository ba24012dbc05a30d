"""Command line: ``python -m imbtorch``."""

from imbtorch.predictions.command_line import main

if __name__ == "__main__":
    raise SystemExit(main())
