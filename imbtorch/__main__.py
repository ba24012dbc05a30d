"""Command line: ``python -m imbtorch``."""

from imbtorch.command_line import main

if __name__ == "__main__":
    raise SystemExit(main())
