"""Build hook: the README as PyPI shows it, with absolute links if the repository's address is known."""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReadmeHook(MetadataHookInterface):
    """Reads ``GITHUB_REPOSITORY`` (owner/name), which GitHub's workflows set; without it links stay as they are."""

    def update(self, metadata: dict) -> None:
        """Set the readme of the project."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository, version = os.environ.get("GITHUB_REPOSITORY"), os.environ.get("GITHUB_REF_NAME", "main")
        if repository:
            pages = f"https://github.com/{repository}/blob/{version}/"
            files = f"https://raw.githubusercontent.com/{repository}/{version}/"
            text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{files}", text)
            text = re.sub(r"((?<!!)\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\]\()(?!https?:|#)", rf"\1{pages}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
