"""Files that were damaged: opening one raises ValueError, or gives what was saved, and never runs code."""

import ast
import collections
import copy
import io
import json
import random
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import run_script

import imbtorch

FILES = 2_000  # damaged files, and as many damaged states
MEMORY = 1 << 30  # bytes that opening may add to what the process has
SWAPS = [
    *(None, True, False, 0, 1, -1, 0.5, 7, 2**31, 2**63, 10**30, 1e308, -1e308, float("nan"), float("inf"), "", "text"),
    *("inf", "os.system", "../../file", [], {}, [[]], [None], ["a", 1], {"a": 1}, [[1, 2], [3]], [0] * 20_000),
    [str(number) for number in range(20_000)],
]
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(autouse=True)
def _bounded():
    """Let an allocation of gigabytes fail rather than succeed."""
    resource = pytest.importorskip("resource", reason="Windows has no limit of memory for a process")
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") if sys.platform == "linux" else io.StringIO("0") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def random_of(seed, *size):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed))


def mine(counts):
    """Return a value that no catalogue knows."""
    return counts.double().sum((-2, -1))


mine.higher_is_better = True


def results():
    """Yield results of all kinds: tasks, scores, intervals, weights, groups, clusters, margins, own measures."""
    target = np.arange(90) % 3
    scores = random_of(0, 90, 3).double().softmax(-1).numpy()
    names = np.array(["a cat", "dog", "été"])
    yield imbtorch.report(preds=names[scores.argmax(1)], target=names[target], intervals=["iam"])
    yield imbtorch.report(preds=scores, target=target)
    yield imbtorch.report(preds=scores[:, 0], target=target > 0, prevalence=[0.5, 0.5])
    yield imbtorch.report(preds=scores[:, :2] > 0.4, target=np.eye(3, dtype=int)[target][:, :2])
    yield imbtorch.report(preds=target, target=target[::-1].copy(), weight=scores[:, 0], measures=["mcc", "f1"])
    yield imbtorch.report(preds=target, target=target[::-1].copy(), cluster=np.arange(90) // 3, intervals=["recall/1"])
    report = imbtorch.ImbalanceReport("multiclass", num_classes=3, state="margins")
    report.update(torch.from_numpy(scores), torch.from_numpy(target))
    yield report.result()
    report = imbtorch.ImbalanceReport("binary", groups=["north", "south"], measures={"mine": mine, "recall": "recall"})
    report.update(torch.from_numpy(target) % 2, torch.from_numpy(target) // 2, group=torch.arange(90) % 2)
    yield report.result()


# --- results ----------------------------------------------------------------------------------------------------------


def damaged_text(text, draw):
    """Return the bytes of a text in which bytes were flipped, lost, doubled or added."""
    data, kind = bytearray(text.encode()), draw.randrange(5)
    begin = draw.randrange(len(data))
    end = min(len(data), begin + draw.choice([1, 2, 10, 100]))
    if kind == 0:
        for _ in range(draw.choice([1, 1, 2, 8])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == 1:
        del data[begin:]
    elif kind == 2:
        del data[begin:end]
    elif kind == 3:
        data[begin:begin] = data[begin:end]
    else:
        data[begin:begin] = draw.randbytes(draw.choice([1, 2, 10]))
    return bytes(data)


def places(tree):
    """Yield each container of a tree with each of its keys or indices."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from places(tree[key])


def damaged_tree(tree, draw):
    """Return a copy of a tree in which a value or a key is another one, or missing; settings as often as values."""
    whole = {"": copy.deepcopy(tree)}
    found = list(places(whole))
    container, key = draw.choice(found[: draw.choice([1, 10, 50, len(found)])])
    kind = draw.randrange(6)
    if kind == 0 and container is not whole:
        del container[key]
    elif kind == 1 and isinstance(container, dict) and container is not whole:
        container[draw.choice(["", "other", f"{key}s", key.upper()])] = container.pop(key)
    elif kind == 2:
        other, place = draw.choice(found)
        container[key] = copy.deepcopy(other[place])
    else:
        container[key] = copy.deepcopy(draw.choice(SWAPS))
    return whole[""]


def damaged_result(text, draw):
    """Return the bytes of a damaged file."""
    kind = draw.randrange(20)
    if kind < 8:
        return damaged_text(text, draw)
    changed = json.dumps(damaged_tree(json.loads(text), draw))
    if kind == 8:
        changed = changed.replace(*draw.choice([("null", DEEP), ("1", "1" * 5_000), ("0.", "1e999999999.")]), 1)
    return DEEP.encode() if kind == 9 else changed.encode()


def contents(result):
    """Return everything that a result shows, as texts."""
    counts = result.counts if isinstance(result.counts, torch.Tensor) else torch.stack(tuple(result.counts))
    return (
        result.signature,
        counts.tolist(),
        {name: f"{float(value):.6g}" for name, value in result.values.items()},
        str(result.table()),
        result.table().to_rows() and str(result.table().to_rows()),
    )


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_result_raises_valueerror_or_is_what_was_saved(tmp_path):
    draw, path, saved, opened, wrong = random.Random(0), tmp_path / "result.json", [], 0, collections.Counter()
    for result in results():
        result.to_json(path)
        saved.append((path.read_text(encoding="utf-8"), contents(imbtorch.open_result(path))))
    for number in range(FILES):
        text, expected = saved[number % len(saved)]
        path.write_bytes(damaged_result(text, draw))
        try:
            found = contents(imbtorch.open_result(path))
        except ValueError:
            continue
        except Exception as error:
            wrong[f"{type(error).__name__}: {error}"] += 1
            continue
        opened += found == expected
        wrong["another result"] += found != expected
    assert not +wrong
    assert opened


CODE = """
    import sys
    import imbtorch

    for name in sys.argv[1:]:  # what opening imports is imported by now
        imbtorch.open_result(name).table()
    names = ("exec", "compile", "import", "pickle.find_class", "os.system", "subprocess.Popen", "socket.connect")
    seen = []
    sys.addaudithook(lambda event, _: seen.append(event) if event in names else None)
    for name in sys.argv[1:]:
        imbtorch.open_result(name).table()
    print(len(sys.argv[1:]), seen)
"""


@pytest.mark.filterwarnings("ignore")
def test_opening_a_result_runs_no_code(tmp_path):
    paths = []
    for number, result in enumerate(results()):
        paths.append(tmp_path / f"{number}.json")
        result.to_json(paths[-1])
    script = tmp_path / "opening.py"
    script.write_text(textwrap.dedent(CODE), encoding="utf-8")
    done = run_script(script, *map(str, paths), folder=tmp_path)  # an audit hook cannot be taken away
    assert done.stdout == f"{len(paths)} []\n", done.stderr


def test_the_package_loads_no_pickle_and_evaluates_no_text():
    root, loads = Path(imbtorch.__file__).parent, 0
    for path in root.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func)
            assert name not in {"eval", "exec", "compile", "pickle.load", "pickle.loads", "os.system"}, path
            if name in {"torch.load", "load"}:
                loads += 1
                assert {"weights_only": "True"}.items() <= {
                    each.arg: ast.unparse(each.value) for each in call.keywords
                }.items()
    assert loads


# --- states -----------------------------------------------------------------------------------------------------------


def modules():
    """Yield two equal modules of each kind that has a state: one that is filled, one that loads."""
    target = torch.arange(60) % 3
    logits = random_of(1, 60, 3) + torch.eye(3)[target]

    def counted(make, *values, **more):
        filled = make()
        filled.update(*values, **more)
        filled.compute()
        filled.persistent(True)
        empty = make()
        empty.persistent(True)
        return filled, empty

    yield imbtorch.Threshold(0.3), imbtorch.Threshold(0.5)
    yield imbtorch.Threshold([0.3, 0.6]), imbtorch.Threshold([0.5, 0.5])
    rules = (imbtorch.LogitAdjustment([5, 2, 1], tau, logits=True) for tau in (2, 1))
    yield tuple(torch.nn.Sequential(torch.nn.Linear(2, 3), rule) for rule in rules)
    yield counted(lambda: imbtorch.ImbalanceReport("multiclass", num_classes=3), logits, target)
    yield counted(
        lambda: imbtorch.ImbalanceReport("multiclass", num_classes=3, clusters=True, groups=["a", "b"]),
        logits,
        target,
        cluster=torch.arange(60) // 2,
        group=torch.arange(60) % 2,
    )
    yield counted(
        lambda: imbtorch.FScore("multiclass", num_classes=3, state="margins", weighted=True),
        logits,
        target,
        weight=target + 0.5,
    )
    yield counted(lambda: imbtorch.ThresholdSweep("f1"), logits.softmax(1)[:, 0], target // 2)
    yield counted(lambda: imbtorch.LogitAdjustmentSweep("iam", [5, 2, 1], logits=True), logits, target)


def damaged_tensor(value, draw):
    """Return something else in place of a tensor of a state."""
    flat = value.flatten().clone()
    if draw.random() < 0.4:
        numbers = [-1, 0, 7, 2**62] + [float("nan"), float("inf"), -1e30, 0.5] * value.is_floating_point()
        flat[draw.randrange(len(flat))] = draw.choice(numbers)
        return flat.reshape(value.shape)
    others = [value.float(), value.bool(), value.to(torch.complex64), flat[:-1], value[None], torch.cat([flat, flat])]
    others += [flat.to_sparse(), value.to("meta"), torch.zeros(1).expand(10**10), torch.zeros(0)]
    return draw.choice([*others, *SWAPS[:20]])


def damaged_state(state, keys, draw):
    """Return a state in which one of our entries is another one, or missing."""
    state, key = dict(state), draw.choice(keys)
    kind = draw.randrange(8)
    if kind == 0:
        del state[key]
    elif kind == 1:
        state[draw.choice(["", "other", f"{key}s", key.upper(), f"{key}.{key}"])] = state.pop(key)
    elif kind == 2:
        state[key] = state[draw.choice(sorted(state))]
    else:
        state[key] = damaged_tensor(state[key], draw)
    return state


def illegal(module):
    """Return the first number of a module that no argument or update could have given it."""
    for name, value in module.state_dict().items():
        legal = {
            "threshold": (value >= 0) & (value <= 1),
            "log_odds": ~value.isnan(),
            "tau": value.isfinite(),
            "prior": (value > 0) & ((value.sum() - 1).abs() < 1e-4),
        }.get(name.rpartition(".")[2], value.isfinite() & ((value >= 0) | ("counts" not in name)))
        if not bool(legal.all()):
            return name.partition("_")[0]
    return None


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_state_raises_or_holds_legal_numbers():
    draw, saved, loaded, wrong = random.Random(0), [], 0, collections.Counter()
    for filled, empty in modules():
        file = io.BytesIO()
        torch.save(filled.state_dict(), file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
        empty.load_state_dict(state)
        saved.append((state, [key for key in state if not key.startswith("0.")], empty))
    for number in range(FILES):
        state, keys, module = saved[number % len(saved)]
        module.load_state_dict(state)
        try:
            module.load_state_dict(damaged_state(state, keys, draw))
            loaded += 1
        except ValueError:
            pass
        except Exception as error:
            if not str(error).startswith("Error(s) in loading state_dict"):  # RuntimeError, as torch raises it
                wrong[f"{type(module).__name__}, {type(error).__name__}: {error}"[:120]] += 1
        if name := illegal(module):
            wrong[f"{type(module).__name__} loads an illegal number of {name!r}"] += 1
    assert not +wrong
    assert loaded
