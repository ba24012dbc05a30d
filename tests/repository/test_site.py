"""The web site: it builds without a warning, its links lead somewhere, and its search finds what readers look for."""

import html.parser
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="needs Sphinx: pip install -e '.[docs]'")

from rooms import PUBLIC_MODULES

ROOT = Path(__file__).parents[2]
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


def test_each_public_object_has_a_page_with_its_signature_once(site):
    listed = Page(site / "api" / "names.html").links
    for module in PUBLIC_MODULES:
        for name in importlib.import_module(module).__all__:
            (page,) = site.glob(f"api/*/{name}.html")
            assert str(page.relative_to(site / "api")) in listed, name
            text = page.read_text(encoding="utf-8")
            if name == "TiesCheckpoint":
                assert "Another name of" in text
                assert 'href="ModelCheckpoint.html#' in text
                continue
            assert ("[source]" in text) == callable(getattr(importlib.import_module(module), name)), name
            assert len(re.findall(rf'id="imbtorch[.\w]*\.{name}"', text)) == 1, name
            assert "__init__" not in text, name


def test_language_models_find_each_name_in_one_line(site):
    lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    named = [found.groups() for line in lines if (found := re.match(r"- \[([\w.]+)\]\((\S+)\): \w", line))]
    modules = {each: importlib.import_module(each) for each in PUBLIC_MODULES}
    public = {id(getattr(module, name)) for module in modules.values() for name in module.__all__}
    found = [id(getattr(modules[name.rpartition(".")[0]], name.rpartition(".")[2])) for name, _ in named]
    assert sorted(found) == sorted(public)  # each object once, by one of its names
    assert all((site / page).is_file() for _, page in named)
    used = lines[lines.index("## Calls most used") + 2 : lines.index("## Guides") - 1]
    assert [line.split(":")[0] for line in used[:2]] == ["- imbtorch.ImbalanceReport", "- imbtorch.ThresholdSweep"]
    assert len(used) == 5
    assert all(re.search(r", as in `[\w.]+\(.+\)`$", line) for line in used)


def test_pages_show_values_of_arguments_and_lead_to_related_pages(site):
    recall, function = (
        (site / "api" / page).read_text(encoding="utf-8") for page in ("metrics/Recall.html", "measures/recall.html")
    )
    for value in ("multiclass", "warn", "margins"):
        assert f"'{value}'" in recall.replace("&#39;", "'")
    assert 'href="../measures/recall.html#imbtorch.recall"' in recall
    assert 'href="../metrics/Recall.html#imbtorch.Recall"' in function
    assert 'href="ConfusionMatrixMetric.html#imbtorch.ConfusionMatrixMetric"' in recall
    assert "_images/Recall.png" in recall
    sweep = (site / "api" / "metrics" / "ThresholdSweep.html").read_text(encoding="utf-8")
    assert "rules.html#calibration" in sweep
    assert "../../choices.html" in sweep
    measures = (site / "measures.html").read_text(encoding="utf-8")
    assert 'href="api/measures/recall.html#imbtorch.recall"' in measures
    assert measures.count("<math") > 29


ANSWERS = {  # what readers type, and what has to be among the first three results
    "multilabel": {"recipes#several-labels"},
    "per class recall": {"api/metrics/ImbalanceReport", "reports#the-report"},
    "confidence interval": {"intervals#how-sure-is-a-value"},
    "auroc": {"api/metrics/ThresholdSweep"},
    "roc": {"api/metrics/ThresholdSweep"},
    "threshold": {"guide#decide"},
    "average precision": {"api/metrics/ThresholdSweep"},
    "early stopping": {"checkpoints#ties", "guide#monitor"},
    "class weights": {"guide#decide", "evidence#the-decision-rule"},
    "csv": {"predictions"},
    "balanced accuracy": {"api/metrics/BalancedAccuracy"},
    "ModelCheckpoint": {"api/lightning/ModelCheckpoint"},
    "ThresholdSweep": {"api/metrics/ThresholdSweep"},
    "F1Score": {"api/metrics/FScore"},
    "mcc": {"api/metrics/MatthewsCorrCoef"},
    "sensitivity": {"rules#sensitivity", "api/metrics/Recall"},
    "specificity at sensitivity": {"rules#specificity-at-a-fixed-sensitivity"},
    "how many positives": {"intervals#how-many-positives-do-i-need"},
    "names of measures": {"reports#names-that-measures-takes"},
    "calibration": {"rules#calibration"},
    "latex": {"reports#tables-for-a-paper"},
    "JaccardIndex": {"api/metrics/Jaccard"},
    "confusion matrix": {"api/metrics/ConfusionMatrix"},
    "recall": {"api/metrics/Recall"},
    "clusters": {"recipes#patients-images-and-labels"},
    "bootstrap": {"api/inference/bootstrap"},
    "logit adjustment": {"api/metrics/LogitAdjustmentSweep"},
    "ddp": {"processes#several-processes"},
    "segmentation": {"recipes#segmentation"},
    "sample weights": {"recipes#survey-weights"},
    "fairness": {"populations#differences-between-groups"},
    "prevalence": {"populations#another-population"},
    "compare models": {"intervals#is-the-new-model-better"},
    "transformers": {"trainers#transformers"},
    "classification report": {"api/metrics/ImbalanceReport"},
    "noisy labels": {"monitoring#wrong-labels"},
    "select_epoch": {"api/choosing/select_epoch"},
}


@pytest.mark.skipif(shutil.which("node") is None, reason="the search is JavaScript, which needs node")
def test_the_search_answers_what_readers_type(site):
    """The site's own script ranks the results; a page is found by any of its sections."""
    command = ("node", str(SOURCE / "search.js"), str(site), *ANSWERS)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ANSWERS) >= 30
    for (query, wanted), results in zip(ANSWERS.items(), found, strict=True):
        first = [address for address, *_ in results][:3]
        assert wanted.intersection({*first, *(address.partition("#")[0] for address in first)}), (query, first)


def test_what_the_search_is_told_exists(site):
    for query, targets in json.loads((SOURCE / "searched.json").read_text(encoding="utf-8")).items():
        assert len(targets) <= 3, query  # all of them are among the first three
        for target in targets:
            page, _, anchor = target.partition("#")
            assert not anchor or anchor in Page(site / f"{page}.html").ids, (query, target)
