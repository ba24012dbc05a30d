"""The advice stands word for word in README, guide and the results of the study."""

from pathlib import Path

import pytest

from imbtorch.choosing.advice import ADVICE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "examples/README.md", "examples/deep_study/results.md"])
def test_pages_give_the_advice_word_for_word(page):
    text = (ROOT / page).read_text(encoding="utf-8").replace("**", "")
    lines = [f"{number}. {line}" for number, line in enumerate(ADVICE.values(), 1)]
    assert " ".join(lines) in " ".join(text.split())
