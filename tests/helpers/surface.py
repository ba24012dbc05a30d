"""Text of the public surface: each name that users import, with its signature, and the methods of each class.

python tests/helpers/surface.py  # writes public_surface.txt anew; its diff shows what was added, changed or taken out
"""

import importlib
import inspect
from pathlib import Path

import imbtorch
from imbtorch.suggestions import PUBLIC_MODULES

FILE = Path(__file__).with_name("public_surface.txt")


def surface():
    """Return the lines of the file."""
    lines, shown = [], set()
    for place in PUBLIC_MODULES:
        module = importlib.import_module(place)
        names = {name: getattr(module, name) for name in module.__all__}
        lines += ["", f"# {place}"]
        for name, value in sorted(names.items()):
            lines += [f"{name}: as above"] if id(value) in shown else described(name, value)
            shown.add(id(value))
    return [line for index, line in enumerate(lines) if index]


def described(name, value):
    """Yield the line of a name and, indented, what a class adds to its public base or to another package's class."""
    if not inspect.isclass(value):
        yield name + (signature(value) if callable(value) else f": {type(value).__name__}")
        return
    base = next((each for each in value.__mro__[1:] if each in map(imbtorch.__dict__.get, imbtorch.__all__)), None)
    yield f"class {name}{signature(value)}" + (f", a {base.__name__}" if base else "")
    fields = getattr(value, "__dataclass_fields__", {}) | dict.fromkeys(getattr(value, "_fields", ()))
    for member in sorted({member for owner in ours(value, base) for member in vars(owner)} | set(fields)):
        found = inspect.getattr_static(value, member, None)
        if member.startswith("_"):
            continue
        if isinstance(found, staticmethod | classmethod):
            found = found.__func__
        if inspect.isfunction(found) and found.__module__.startswith("imbtorch"):
            yield f"    {member}{signature(found)}"
        elif not inspect.isfunction(found) and not hasattr(base, member):
            yield f"    {member}"


def ours(value, base):
    """Return the classes of this package that a class is made of, without those of its public base."""
    inherited = () if base is None else base.__mro__
    return [each for each in value.__mro__ if each.__module__.startswith("imbtorch") and each not in inherited]


def signature(value):
    """Return names, kinds and defaults of the public parameters; what other packages define is three dots."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return "(...)"
    shown, kind = [], None
    for each in (each for each in parameters if not each.name.startswith("_")):
        if each.kind is each.KEYWORD_ONLY and kind not in (each.KEYWORD_ONLY, each.VAR_POSITIONAL):
            shown.append("*")
        kind = each.kind
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(kind, "")
        default = each.default
        text = "" if default is each.empty else f"={getattr(default, '__name__', None) or repr(default)}"
        shown.append(star + each.name + (text if len(text) < 60 and " at 0x" not in text else "=..."))
    return f"({', '.join(shown)})"


def text():
    """Return the text of the file."""
    return "\n".join(surface()) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
