"""The web site: it builds without a warning, its links lead somewhere, and its search finds what readers look for."""

import html.parser
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="needs Sphinx: pip install -e '.[docs]'")
from snowballstemmer import stemmer  # comes with Sphinx

from imbtorch.suggestions import PUBLIC_MODULES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / ".github" / "docs"

pytestmark = [
    pytest.mark.slow,  # they build the site
    pytest.mark.skipif(not SOURCE.exists(), reason="needs the sources of the site, which an sdist leaves out"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site; a warning is an error, such as a reference or a link that leads nowhere."""
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(folder / "trees"))
    done = subprocess.run(
        (*command, str(SOURCE), str(folder / "html")),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


class Page(html.parser.HTMLParser):
    """Ids of a page, the addresses that it links to, and those that it loads."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = set(), set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        loads = "src" in attributes or attributes.get("rel") == "stylesheet"
        (self.loads if loads else self.links).update(attributes[name] for name in ("href", "src") if name in attributes)


def test_links_lead_somewhere_and_nothing_is_loaded_from_a_network(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 20
    missing = [f"{path.name}: {address}" for path, page in pages.items() for address in page.loads if "//" in address]
    for path, page in pages.items():
        for address in page.links | page.loads:
            parts = urlsplit(address)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages[target].ids if target in pages else ()
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in known):
                missing.append(f"{path.relative_to(site)}: {address}")
    assert not missing


PAGES = {  # what readers look for, and the page that must be among the results
    "balanced accuracy": "api/metrics/BalancedAccuracy",
    "threshold": "api/metrics/ThresholdSweep",
    "ModelCheckpoint": "api/lightning/ModelCheckpoint",
    "clusters": "api/inference/bootstrap",
    "F1Score": "api/metrics/FScore",
    "mcc": "api/metrics/MatthewsCorrCoef",
    "sensitivity": "api/metrics/Recall",
    "JaccardIndex": "api/metrics/Jaccard",
}


def test_each_public_object_has_a_page_with_its_signature_once(site):
    listed = Page(site / "api" / "names.html").links
    for module in PUBLIC_MODULES:
        for name in importlib.import_module(module).__all__:
            (page,) = site.glob(f"api/*/{name}.html")
            assert str(page.relative_to(site / "api")) in listed, name
            text = page.read_text(encoding="utf-8")
            if name == "ModelCheckpoint":
                assert "Another name of" in text
                assert 'href="TiesCheckpoint.html#' in text
                continue
            assert len(re.findall(rf'id="imbtorch[.\w]*\.{name}"', text)) == 1, name
            assert "__init__" not in text, name


def test_the_search_index_holds_what_readers_look_for(site):
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    stem = stemmer("english").stemWord
    for words, page in PAGES.items():
        for word in words.split():
            found = [index[terms].get(stem(word.lower()), []) for terms in ("terms", "titleterms")]
            numbers = {number for each in found for number in ([each] if isinstance(each, int) else each)}
            assert page in {index["docnames"][number] for number in numbers}, word
