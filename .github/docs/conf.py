"""Configuration of the web site: ``python -m sphinx -W --keep-going .github/docs out/site``."""

import ast
import contextlib
import doctest
import functools
import gc
import importlib
import inspect
import io
import json
import os
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import latex2mathml.converter
import matplotlib as mpl
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import stringify_annotation
from torchmetrics import Metric

import imbtorch
import imbtorch.lightning
from imbtorch import Margins
from imbtorch.counting import arguments
from imbtorch.lightning.base import Callback
from imbtorch.measures import named, shared
from imbtorch.measures.traits import CATALOGUE
from imbtorch.metrics import base as metrics_base
from imbtorch.suggestions import PUBLIC_MODULES, SYNONYMS

mpl.use("Agg")
imbtorch.lightning.TiesCheckpoint.__name__ = "ModelCheckpoint"  # the name that guides use has the page

logger = logging.getLogger(__name__)
gc.set_threshold(100_000, 50, 100)  # trees of pages stay; looking for garbage among them took a fifth of a build

HERE = Path(__file__).resolve().parent

project, author = "imbtorch", "the imbtorch developers"
version = release = imbtorch.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme, html_title = "furo", f"imbtorch {release}"
pygments_style = "tango"  # which colours the added lines of a diff, too
html_static_path, html_css_files, html_js_files = ["static"], ["site.css"], ["copy.js"]
smartquotes_action = "D"  # quotes stay as they are typed, in prose as in code
html_search_scorer = str(HERE / "scorer.js")
html_math_renderer = "mathml"
html_show_sourcelink = html_copy_source = False  # pages that include a file have no source of their own
toc_object_entries_show_parents = "hide"
myst_heading_anchors, myst_enable_extensions = 4, ["dollarmath", "alert"]

autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_inherit_docstrings = False
python_display_short_literal_types = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Further arguments", "params_style"), ("Inputs of update", "params_style")]

nitpicky = True  # every reference must resolve, those of signatures among them
nitpick_ignore = [("py:class", "Axes"), ("py:class", "Figure")]  # of matplotlib, imported for type checkers alone
nitpick_ignore_regex = [("py:class", "'.*'")]  # the values of a Literal
if os.environ.get("IMBTORCH_DOCS_INVENTORIES"):  # links into other packages' sites, whose indices a network holds
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "torchmetrics": ("https://lightning.ai/docs/torchmetrics/stable", None),
    }


# --- pages that show a file of the repository -------------------------------------------------------------------------

INCLUDE = re.compile(r"{include} (\S+)")
SHOWN = {
    (page.parent / found[1]).resolve(): page.relative_to(HERE).with_suffix("").as_posix()
    for page in HERE.glob("*.md")
    if (found := INCLUDE.search(page.read_text(encoding="utf-8")))
} | {HERE.parents[1] / "examples" / "api.md": "api/names"}  # the site links to a page of each object instead


MEASURES = HERE.parents[1] / "imbtorch" / "measures" / "README.md"


def relink(app: Sphinx, path: Path, page: str, text: list[str]) -> None:
    """Point the relative links of an included file at the page that shows their target, or at the file itself.

    In the table of measures the names of functions and classes become links to their pages.
    """
    folder = (HERE / path).resolve().parent

    def follow(link: re.Match[str]) -> str:
        target = (folder / link[1]).resolve()
        if target in SHOWN:
            return f"](/{SHOWN[target]}.md{link[2]}"
        return f"](/{os.path.relpath(target, HERE)}{link[2]}" if target.is_file() else link[0]

    text[0] = re.sub(r"\]\(([^)\s#]+)((?:#[^)\s]*)?\))", follow, text[0])
    if (HERE / path).resolve() == MEASURES:
        names = r"^(\| [^|]* \| )`(\w+)` \| `(\w+)` \|"
        links = r"\1{func}`~imbtorch.\2` | {class}`~imbtorch.\3` |"
        text[0] = re.sub(names, links, text[0], flags=re.MULTILINE)


# --- objects ----------------------------------------------------------------------------------------------------------


def public_name(value: object) -> str | None:
    """Return the name by which users import an object; None for a private one."""
    for module in map(importlib.import_module, PUBLIC_MODULES):
        own = getattr(value, "__name__", None)
        for name in sorted(module.__all__, key=lambda name: name != own):  # its own name before others
            if getattr(module, name) is value:
                return f"{module.__name__}.{name}"
    return None


def shown_bases(value: type) -> list[type]:
    """Return the public classes and those of other packages that a class inherits from, in place of private ones."""
    bases = []
    for base in value.__bases__:
        private = base.__module__.startswith("imbtorch.") and public_name(base) is None
        bases += shown_bases(base) if private else [base]
    return [base for base in dict.fromkeys(bases) if base is not object]


def replace_bases(app: Sphinx, name: str, value: type, options: object, bases: list[type]) -> None:
    """Show the bases that readers can look up."""
    bases[:] = shown_bases(value)


OBJECTS: dict[str, list[tuple[str, str, str]]] = {}  # module -> page, title and public name of each object


def names_of(module: ModuleType) -> set[str]:
    """Return the names that a module defines, without those that it imports."""
    names = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def write_pages(app: Sphinx) -> None:
    """Write a page for each object of the modules that a page of the reference shows, in a folder of that page."""
    written = set()
    for page in (HERE / "api").glob("*.md"):
        for module_name in re.findall(r"^\.\. public:: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            module = importlib.import_module(module_name)
            listed = OBJECTS[module_name] = []
            own = names_of(module)
            for name, value in vars(module).items():
                public = public_name(value) if name in own else None
                if public is None:
                    continue
                path = page.with_suffix("") / f"{name}.rst"
                title = public.removeprefix("imbtorch.") if public.endswith(f".{name}") else name
                lines = [title, "=" * len(title), "", *documentation(module_name, name, public, value)]
                if public.endswith(f".{name}"):
                    lines += ["", *pictures(path, name, value), *see_also(name, value)]
                text = "\n".join([*lines, ""])
                path.parent.mkdir(exist_ok=True)
                if not path.exists() or path.read_text(encoding="utf-8") != text:  # else it would be read again
                    path.write_text(text, encoding="utf-8")
                written.add(path)
                listed.append((path.relative_to(HERE).with_suffix("").as_posix(), title, public))
    for path in set((HERE / "api").glob("*/*.rst")) - written:
        path.unlink()


def documentation(module: str, name: str, public: str, value: object) -> list[str]:
    """Return the autodoc directive of an object; a class shows what it inherits from private classes."""
    lines = [f".. index:: {', '.join(f'! {other}' for other in others)}", ""] if (others := synonyms(name)) else []
    if not public.endswith(f".{name}"):
        return [f"Another name of :class:`{public}`."]
    if inspect.isclass(value):
        lines.append(f".. autoclass:: {public}")
        if shown_bases(value):
            lines.append("   :show-inheritance:")
        if not any(map(public_name, value.__bases__)):
            lines.append(
                "   :inherited-members: Metric, Module, tuple, dict, Mapping, Callback, Sampler, ModelCheckpoint"
            )
    elif callable(value):
        lines.append(f".. autofunction:: {public}")
    else:  # its docstring is found where it is defined only
        lines.append(f".. autodata:: {module}.{name}\n   :no-value:")
    if others:
        lines += ["", f"Other names of this or a related measure: {', '.join(others)}."]
    return lines


GUIDES = {  # pages with code, by their titles; those with the most on a subject first
    "guide": "Guide",
    "rules": "Decision rules",
    "intervals": "Intervals",
    "choices": "Corrected choices",
    "reports": "Reports",
    "checkpoints": "Checkpoints",
    "populations": "Populations",
    "processes": "Processes",
    "predictions": "Saved predictions",
    "monitoring": "Monitoring",
    "recipes": "Recipes",
    "trainers": "Recipes by tool",
}


@functools.cache
def sections() -> list[tuple[str, str, str, str]]:
    """Return page, heading, anchor and code of each section of the guides."""
    found = []
    sources = {page: source for source, page in SHOWN.items()}
    for page in GUIDES:
        parts = re.split(r"^##+ (.*)$", sources[page].read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        for heading, text in zip(parts[::2], parts[1::2], strict=True):
            code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
            found.append((page, heading, nodes.make_id(heading), code))
    return found


MOST_LINKS = 6  # of an object's page to sections that use it


def partner(value: object) -> str | None:
    """Return a link from the metric of a measure to its function, or the other way round; None for other objects."""
    if inspect.isclass(value):
        function = getattr(value, "measure", None)
        return (
            f"- :func:`{public_name(function)}`, the measure as a function of counts" if function in CATALOGUE else None
        )
    metrics = (getattr(imbtorch, name) for name in imbtorch.__all__)
    found = next((each for each in metrics if inspect.isclass(each) and getattr(each, "measure", None) is value), None)
    return f"- :class:`{public_name(found)}`, the measure as a metric" if found and callable(value) else None


def see_also(name: str, value: object) -> list[str]:
    """Return links to the function or the class of the same measure, and to sections whose code uses an object."""
    used = re.compile(rf"\b{name}\(|\.{name}\b|import .*\b{name}\b")
    lines = [link] if (link := partner(value)) else []
    for page, heading, anchor, code in sections():
        if used.search(code) and len(lines) < MOST_LINKS:
            lines.append(f"- `{GUIDES[page]}: {heading} <../../{page}.html#{anchor}>`__")
    return ["", ".. rubric:: See also", "", *lines] if lines else []


@functools.cache
def gallery() -> dict[str, tuple[str, str]]:
    """Return the picture of the gallery and its description for each object that a caption begins with."""
    text = (HERE.parents[1] / "examples" / "gallery.md").read_text(encoding="utf-8")
    found = re.findall(r"!\[([^]]*)\]\(figures/(\w+)\.png\)\s+`(\w+)", text)
    return {name: (file, described) for described, file, name in found}


def pictures(path: Path, name: str, value: object) -> Iterator[str]:
    """Yield a picture for the page of an object: that of the gallery, else what ``plot`` of its example draws."""
    if name in gallery():
        file, described = gallery()[name]
        yield from ("", f".. image:: /../../examples/figures/{file}.png", f"   :alt: {described}")
    elif inspect.isclass(value) and issubclass(value, Metric) and draw_example(path.with_suffix(".png"), value):
        yield from ("", f".. image:: {path.stem}.png", "   :alt: What plot() draws for the example", "   :width: 24em")


def draw_example(path: Path, value: type) -> bool:
    """Run the example of a metric, and save what its ``plot`` draws; return whether there is a picture."""
    from matplotlib import pyplot

    if path.exists():
        return True
    names = {**vars(importlib.import_module(value.__module__)), "imbtorch": imbtorch}
    source = "".join(example.source for example in doctest.DocTestParser().get_examples(value.__doc__ or ""))
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        exec(source, names)
        metric = next((each for each in names.values() if type(each) is value), None)
        if metric is None:
            return False
        metric.compute()
        figure, _ = metric.plot()
    path.parent.mkdir(exist_ok=True)
    figure.set_size_inches(5, 3.2)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)
    return True


def synonyms(name: str) -> list[str]:
    """Return the names by which readers may search a measure or its metric: keys, synonyms, and other packages'."""
    plain = name.lower().replace("_", "")
    groups = [group for group in SYNONYMS if plain in group]
    measure = getattr(imbtorch, name, None)
    traits = CATALOGUE.get(getattr(measure, "measure", measure)) if callable(measure) else None
    names = [traits.key] if traits else []
    return sorted({other for group in groups for other in group}.union(names) - {plain, name})


def table_of_names(objects: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a table of titles and first sentences, given the page, title and public name of each object."""
    lines = ["", ".. list-table::", "   :widths: 35 65", ""]
    for page, title, public in objects:
        lines += [f"   * - :doc:`{title} </{page}>`", f"     - {first_sentence(find(public))}"]
    return lines


def first_sentence(value: object) -> str:
    """Return the first sentence of the docstring of a class or function."""
    summary = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[a-z)\]`])[.:;] |\.$", summary)[0] if callable(value) else "constant"


def of_all_names() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield each public module with the page, title and public name of its objects, sorted."""
    objects = {each[0].rpartition("/")[2]: each for listed in OBJECTS.values() for each in listed}
    for module in PUBLIC_MODULES:
        names = sorted(importlib.import_module(module).__all__, key=str.lower)
        yield module, [objects[name] for name in names]


class AllNames(SphinxDirective):
    """List the names of all public modules, sorted, with links to the page of each object."""

    def run(self) -> list[nodes.Node]:
        """Write a table for each module."""
        lines: list[str] = []
        for module, objects in of_all_names():
            lines += ["", f".. rubric:: {module}", *table_of_names(objects)]
        return self.parse_text_to_nodes("\n".join(lines))


MOST_USED = 5


def most_used() -> list[tuple[str, str]]:
    """Return the classes and functions that most sections of the guides call, each with its commonest call."""
    public = {name: f"{module}.{name}" for module in PUBLIC_MODULES for name in importlib.import_module(module).__all__}
    used, calls = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for *_, code in sections():
        found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
        named = [(ast.unparse(node.func).rpartition(".")[2], ast.unparse(node)) for node in found]
        used.update({name for name, _ in named if name in public})
        for name, call in named:
            calls[name][call] += 1
    return [(public[name], calls[name].most_common(1)[0][0]) for name, _ in used.most_common(MOST_USED)]


def write_for_models(app: Sphinx, exception: Exception | None) -> None:
    """Write ``llms.txt``: guides, the calls most used and all names, one line each, for language models."""
    if exception is not None or app.builder.format != "html":
        return
    readme = (HERE.parents[1] / "README.md").read_text(encoding="utf-8")
    summary = " ".join(readme.split("\n\n")[1].replace("**", "").split())
    lines = ["# imbtorch", "", f"> {summary}", "", "## Calls most used", ""]
    lines += [f"- {name}: {first_sentence(find(name))}, as in `{call}`" for name, call in most_used()]
    lines += ["", "## Guides", "", *(f"- [{title}]({page}.html)" for page, title in GUIDES.items())]
    for module, objects in of_all_names():
        own = {public: page for page, _, public in reversed(objects) if public.rpartition(".")[0] == module}
        lines += ["", f"## {module}", ""]
        lines += [f"- [{public}]({own[public]}.html): {first_sentence(find(public))}" for public in reversed(own)]
    (Path(app.outdir) / "llms.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


class PublicObjects(SphinxDirective):
    """List what users import of a module, in the order of its source, with links to the page of each object."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Write a table of names and first sentences, and enter the pages into the table of contents."""
        if not OBJECTS[self.arguments[0]]:
            raise self.error(f"{self.arguments[0]} has no public object")
        lines = table_of_names(OBJECTS[self.arguments[0]])
        lines += ["", ".. toctree::", "   :hidden:", ""]
        lines += [f"   /{page}" for page, *_ in OBJECTS[self.arguments[0]]]
        return self.parse_text_to_nodes("\n".join(lines))


def add_constructor(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Add the arguments of a constructor to a class whose docstring does not list them, in place of a second entry."""
    constructor = vars(value).get("__init__") if inspect.isclass(value) else None
    if constructor is not None and constructor.__doc__ and "Args:" not in lines:
        section = inspect.cleandoc(constructor.__doc__).partition("\n\n")[2]
        lines += ["", *section.splitlines(), ""]


def skip_member(app: Sphinx, what: str, name: str, value: object, skip: bool, options: object) -> bool | None:
    """Leave out fields of named tuples, which their class describes, measures of metrics, and Lightning's hooks."""
    module = str(getattr(value, "__module__", "")) if what == "class" else ""
    hook = module.startswith("imbtorch.lightning.") and hasattr(Callback, name)
    field = isinstance(value, type(Margins.actual))
    return True if field or hook or module.startswith("imbtorch.measures.") else None


TITLES = {
    re.match(r"# (.*)", source.read_text(encoding="utf-8"))[1]: page
    for source, page in SHOWN.items()
    if source.suffix == ".md"
}
NAMED = re.compile(r'"([A-Z][^"]*)"')


def link_pages(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Turn the titles of pages in quotes into links."""

    def follow(found: re.Match[str]) -> str:
        title = " ".join(found[1].split())
        return f":doc:`{title} </{TITLES[title]}>`" if title in TITLES else found[0]

    lines[:] = NAMED.sub(follow, "\n".join(lines)).split("\n")


ALIASES = {
    name: stringify_annotation(getattr(module, name), "smart", short_literals=True)
    for module, names in {
        arguments: ("Task", "Layout", "Thresholds"),
        metrics_base: ("OnInvalid",),
        shared: ("Average",),
        named: ("Measured",),
    }.items()
    for name in names
}


def show_aliases(app: Sphinx, what: str, name: str, *others: object) -> None:
    """Show the values that an argument takes in place of the name of their type."""
    hints = app.env.current_document.autodoc_annotations.get(name, {})
    for argument, hint in hints.items():
        shown = re.sub(rf"(?<![.\w])({'|'.join(ALIASES)})\b", lambda found: ALIASES[found[1]], hint)
        if shown != hint:
            shown = re.sub(r"Literal\[('\w+')\]", r"\1", shown)
            hints[argument] = " | ".join(dict.fromkeys(shown.split(" | "))) if "[" not in shown else shown


INTERNAL = {"sync_context"}  # methods for other packages, listed last


def arrange(app: Sphinx, doctree: nodes.document) -> None:
    """Move methods that users do not call behind the others."""
    for owner in doctree.findall(addnodes.desc_content):
        last = [
            node
            for node in owner
            if isinstance(node, addnodes.desc) and node[0].get("fullname", "").rpartition(".")[2] in INTERNAL
        ]
        for node in last:
            owner.remove(node)
        owner += last


def let_break(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Let long names in tables break behind dots and underscores, and nowhere else."""
    places: list[nodes.Element] = []
    for table in doctree.findall(nodes.table):
        places += table.findall(nodes.literal)
        places += table.findall(nodes.reference)
    for place in places:
        for text in [*place.findall(nodes.Text)]:
            parts = re.split(r"(?<=[._])(?=\w)", text)
            if len(parts) > 1 and len(text) > 12:
                pieces = [node for part in parts for node in (nodes.Text(part), nodes.raw("", "<wbr>", format="html"))]
                text.parent.replace(text, pieces[:-1])


def let_titles_break(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Let a long title break behind dots and underscores and before capitals; lists and the search show it as it is."""

    def broken(found: re.Match[str]) -> str:
        return found[1] + re.sub(r"(?<=[._])(?=\w)|(?<=[a-z])(?=[A-Z])", "<wbr>", found[2])

    context["body"] = re.sub(r"(<h1>)([^<]*)", broken, context.get("body", ""), count=1)


def find_source(app: Sphinx, module: str) -> tuple[str, dict[str, tuple[str, int, int]]] | None:
    """Find the source of ``ModelCheckpoint``, which its module holds under its other name, and of shared modules.

    A module has one prefix for the links back from its source, that of its public names; its private ones get none.
    """
    shared = {"imbtorch.reports.rows": "Result", "imbtorch.metrics.shared_result": "SharedResult"}
    if module not in (imbtorch.lightning.ModelCheckpoint.__module__, *shared):
        return None
    analyzer = ModuleAnalyzer.for_module(module)
    tags = {name: tag for name, tag in analyzer.find_tags().items() if name.split(".")[0] != shared.get(module)}
    return analyzer.code, {name.replace("TiesCheckpoint", "ModelCheckpoint"): tag for name, tag in tags.items()}


# --- search -----------------------------------------------------------------------------------------------------------

SEARCHED: dict[str, list[str]] = json.loads((HERE / "searched.json").read_text(encoding="utf-8"))


def enter_searched(app: Sphinx, doctree: nodes.document) -> None:
    """Enter what readers type into the index, at the pages and sections that answer it."""
    page = app.env.current_document.docname
    for query, targets in SEARCHED.items():
        for target in targets:
            answer, _, anchor = target.partition("#")
            if answer == page:
                doctree.insert(0, addnodes.index(entries=[("single", query, anchor, "main", None)]))


def undivided(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Keep napoleon from taking the words before a colon for a type: types of properties stand in their signatures."""
    if what in ("property", "attribute", "data"):
        lines[:0] = ["..", ""]  # a comment


@functools.cache
def find(name: str) -> object:
    """Import what a dotted name stands for; None if there is no such thing."""
    parts = name.split(".") if name else []
    for depth in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:depth]))
        except ImportError:
            continue
        for part in parts[depth:]:
            value = inspect.getattr_static(value, part, None)
        return value
    return None


@functools.cache
def names_by_identity(names: tuple[str, ...]) -> dict[int, str]:
    """Map the identity of each documented object to its name."""
    return {id(find(name)): name for name in names}


def home(node: nodes.Node) -> str | None:
    """Return the module whose source holds the docstring or signature that a reference stands in."""
    while node is not None and not (isinstance(node, addnodes.desc) and node["domain"] == "py"):
        node = node.parent
    if node is None:
        return None
    signature = node.next_node(addnodes.desc_signature)
    value = find(f"{signature['module']}.{signature['fullname']}")
    return getattr(inspect.unwrap(value), "__module__", None) if callable(value) else home(node.parent)


def resolve(app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Element) -> nodes.Node | None:
    """Resolve a name as Python does where it is written, or among the documented names.

    An object is documented by one of its names, so that it is found by identity. Of objects of other packages it is
    enough that they exist.
    """
    if node.get("refdomain") != "py":
        return None
    objects, target = env.domains.python_domain.objects, node["reftarget"]
    documented = names_by_identity(tuple(objects))
    modules = sorted({name.rpartition(".")[0] for name in objects}.difference(objects))
    for scope in ("", home(node), *modules):
        name = f"{scope}.{target}" if scope else target
        value, owner = find(name), find(name.rpartition(".")[0])
        shown = documented.get(id(value)) or f"{documented.get(id(owner))}.{name.rpartition('.')[2]}"
        if value is not None and shown in objects:
            entry = objects[shown]
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, text, shown)
        module = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None) or "builtins"
        if value is not None and (isinstance(value, TypeVar) or module.partition(".")[0] != "imbtorch"):
            return text
    return None


def check_public(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public objects that no page documents."""
    documented = names_by_identity(tuple(env.domains.python_domain.objects))
    for module in map(importlib.import_module, PUBLIC_MODULES):
        for name in module.__all__:
            if id(getattr(module, name)) not in documented:
                logger.warning("%s.%s is on no page of .github/docs/api", module.__name__, name)


def show_math(self: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers draw without a script or a network."""
    if isinstance(node, nodes.math_block):  # parts that a space separates can stand below each other
        parts = re.split(r"\\q?quad\b", node.astext())
        formulas = [latex2mathml.converter.convert(part.strip(), display="block") for part in parts]
        self.body.append(f'<div class="formula">{"".join(formulas)}</div>')
    else:
        self.body.append(latex2mathml.converter.convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Connect what is above."""
    app.connect("include-read", relink)
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("autodoc-process-signature", show_aliases, priority=900)  # after the hints are recorded
    app.connect("doctree-read", arrange)
    app.connect("doctree-resolved", let_break)
    app.connect("html-page-context", let_titles_break)
    app.connect("viewcode-find-source", find_source)
    app.connect("doctree-read", enter_searched)
    app.add_directive("public", PublicObjects)
    app.add_directive("all-names", AllNames)
    app.connect("autodoc-process-docstring", add_constructor, priority=390)  # before napoleon
    app.connect("autodoc-process-bases", replace_bases)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", undivided, priority=400)  # before napoleon
    app.connect("missing-reference", resolve, priority=900)  # after the inventories of other packages
    app.connect("env-check-consistency", check_public)
    app.connect("build-finished", write_for_models)
    app.add_html_math_renderer("mathml", (show_math, None), (show_math, None))
