"""Build hook: the README as PyPI shows it, with absolute links if the repository's address is known.

With ``IMBTORCH_INDEX`` set, as ``release.py`` does, it installs from PyPI in place of a clone.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReadmeHook(MetadataHookInterface):
    """Reads ``GITHUB_REPOSITORY`` (owner/name), which GitHub's workflows set; without it links stay as they are."""

    def update(self, metadata: dict) -> None:
        """Set the readme of the project."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if os.environ.get("IMBTORCH_INDEX"):
            variant = (Path(self.root) / ".github" / "INSTALL.md").read_text(encoding="utf-8")
            text = installing_from_the_index(text, variant)
        repository, version = os.environ.get("GITHUB_REPOSITORY"), os.environ.get("GITHUB_REF_NAME", "main")
        if repository:
            pages = f"https://github.com/{repository}/blob/{version}/"
            files = f"https://raw.githubusercontent.com/{repository}/{version}/"
            text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{files}", text)
            text = re.sub(r"((?<!!)\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\]\()(?!https?:|#)", rf"\1{pages}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def installing_from_the_index(text: str, variant: str) -> str:
    """Return a README whose section on the installation, up to its commands, is another one."""
    changed, times = re.subn(r"(?ms)^## Install\n.*?^```sh\n.*?^```\n", lambda _: variant, text)
    if times != 1:
        raise ValueError("README.md needs one section '## Install' with commands in ```sh, which INSTALL.md replaces")
    return changed
