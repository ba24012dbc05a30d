"""All pages together: links lead somewhere, every page has a link, code is run, and no page repeats another one."""

import itertools
import re

import pytest
from pages import FENCED, PAGES, ROOT, anchors, links, read

# each index, and the pages that it must link to; a study's own index is its page of results, or its README
INDICES = {
    "examples/README.md": [
        *ROOT.glob("examples/*.md"),
        *ROOT.glob("examples/*/README.md"),
        *(path for path in ROOT.glob("examples/*/results.md") if not path.with_name("README.md").exists()),
        *ROOT.glob("imbtorch/**/*.md"),
    ],
    "README.md": [
        ROOT / "examples" / "README.md",
        *(ROOT / f".github/{name}.md" for name in ("CONTRIBUTING", "SUPPORT", "CITING", "CHANGELOG", "SECURITY")),
    ],
    ".github/CONTRIBUTING.md": [ROOT / ".github" / "CODE_OF_CONDUCT.md"],
}
TEMPLATES = {"INSTALL.md", "PULL_REQUEST_TEMPLATE.md", "RELEASING.md"}  # which others show, or maintainers alone need
LIKE, MOST_ALIKE = 0.45, 8  # share of the shorter sentence's 4-grams that make two alike, and how many pairs may be


def index_of(path):
    """Return the index that has to link to a page."""
    for index, pages in INDICES.items():
        if path in pages:
            return ROOT / index
    folder = path.parent
    return folder / ("README.md" if (folder / "README.md").exists() else "results.md")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    page = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", page):
        if not link.startswith("https://"):
            name, _, anchor = link.partition("#")
            there = path.parent / name if name else path
            assert there.exists(), link
            assert not anchor or anchor in anchors(there.read_text(encoding="utf-8")), link
    for picture in re.findall(r"!\[([^]]*)\]", page):
        assert len(picture) > 20  # said in words for those who cannot see it


def test_every_page_has_a_link_from_its_index():
    pages = [path for path in PAGES if path.name not in TEMPLATES and path != ROOT / "README.md"]
    lost = [path.relative_to(ROOT).as_posix() for path in pages if path not in links(index_of(path)) | {index_of(path)}]
    assert not lost


OUTPUT = re.compile(r"^```(?:text|console)\n(.*?)^```\n\n(.*?)(?:\n\n|\Z)", re.DOTALL | re.MULTILINE)


def test_paragraphs_after_an_output_quote_it():
    """A number with three decimals below an output is one of that output, unless its paragraph names another source."""
    quoted = 0
    for path in PAGES:
        for output, below in OUTPUT.findall(path.read_text(encoding="utf-8")):
            for part in below.split("\n- "):
                if not re.match(r"[#|`]", part) and not re.search(r"\.csv\)|`python examples/", part):
                    numbers = re.findall(r"(?<![\d.])\d\.\d{3}(?!\d)", part)
                    assert [number for number in numbers if number not in output] == [], (path, part)
                    quoted += len(numbers)
    assert quoted >= 15


@pytest.mark.parametrize("name", ["README", "recipes", "comparison"])
def test_the_contents_name_each_section(name):
    contents, *sections = re.split(r"^## ", FENCED.sub("", read(f"examples/{name}.md")), flags=re.MULTILINE)
    named = [next(iter(anchors(f"## {section.splitlines()[0]}"))) for section in sections]
    assert [anchor for anchor in named if f"(#{anchor})" not in contents] == []


def sentences():
    """Yield page, text and 4-grams of each sentence of eight words or more; studies and protocols are archives."""
    for path in [ROOT / "README.md", *sorted((ROOT / "examples").rglob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        if "study" in name or "results" in name or "protocol" in name:
            continue
        prose = re.sub(r"```.*?```|\|.*", " ", read(name), flags=re.DOTALL)
        for sentence in re.split(r"(?<=[.!?])\s+", prose):
            words = re.findall(r"[a-z0-9']+", sentence.lower())
            if len(words) >= 8:
                yield name, " ".join(sentence.split()), {tuple(words[at : at + 4]) for at in range(len(words) - 3)}


def test_pages_hardly_repeat_each_other():
    """A fact has one home, to which other pages link."""
    found, places = list(sentences()), {}
    for number, (*_, grams) in enumerate(found):
        for gram in grams:
            places.setdefault(gram, []).append(number)
    alike = set()
    for numbers in places.values():
        for a, b in itertools.combinations(numbers if len(numbers) < 12 else (), 2):
            (page, _, grams), (other, _, others) = found[a], found[b]
            if page != other and len(grams & others) >= LIKE * min(len(grams), len(others)):
                alike.add((a, b))
    assert len(alike) <= MOST_ALIKE, "\n\n".join("\n".join(": ".join(found[at][:2]) for at in pair) for pair in alike)


def test_every_block_of_python_is_run():
    """Blocks marked ``python`` are run on any page; parts of programs, marked otherwise, the README alone has."""
    for path in PAGES:
        marks = set(re.findall(r"^```(\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE))
        parts = {"py", "diff"} if path == ROOT / "README.md" else set()
        assert marks <= {"python", "text", "console", "bash", "sh", "bibtex", "yaml"} | parts, path
