"""Pages of the repository: where they are, their code with its output, and their prose."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("*.md", ".github/*.md", "examples/**/*.md", "imbtorch/**/*.md")
PAGES = [path for pattern in FOLDERS for path in sorted(ROOT.glob(pattern))]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)  # code and output
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def read(page):
    """Return the text of a page, given its path from the root."""
    return (ROOT / page).read_text(encoding="utf-8")


def anchors(text):
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path):
    """Return the files and folders of the repository that a page links to."""
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    return {(path.parent / link).resolve() for link in found if "://" not in link}
