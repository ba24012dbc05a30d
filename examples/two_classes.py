"""Find more of a rare class at a bearable precision: choose a threshold on validation images, and test it once.

    pip install . scikit-learn
    python examples/two_classes.py

The data are scikit-learn's 1,797 digits; the rare class are the eights, a tenth of the images. The first lines are of
one split into training, validation and test images. Twelve splits follow, because one may be luck.
"""

import statistics

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import imbtorch

MEASURES = ["recall", "precision", "f1"]


def scored(seed):
    """Train, and return scores and targets of validation images and of test images."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x / 16, y == 8, test_size=0.3, stratify=y == 8, random_state=seed)
    x, x_val, y, y_val = train_test_split(x, y, test_size=0.43, stratify=y, random_state=seed)
    model = LogisticRegression().fit(x, y)
    val, test = (torch.from_numpy(model.predict_proba(each)[:, 1]) for each in (x_val, x_test))
    return val, torch.from_numpy(y_val), test, torch.from_numpy(y_test)


def chosen(measure, at_least, val, y_val):
    """Choose a threshold on validation images."""
    sweep = imbtorch.ThresholdSweep(measure, at_least=at_least)
    sweep.update(val, y_val)
    sweep.compute()  # sets sweep.rule
    return sweep


val, y_val, test, y_test = scored(seed=0)
sweep = chosen("recall", {"precision": 0.8}, val, y_val)
print(f"threshold of the validation images: {sweep.rule.threshold:.3f}")
for rule, preds in {"0.5": test > 0.5, "chosen": sweep.rule(test)}.items():
    found = imbtorch.report(preds=preds, target=y_test, measures=MEASURES)
    right, alarms = int((preds * y_test).sum()), int(preds.sum())
    values = "  ".join(f"{name} {found[name]:.3f}" for name in MEASURES)
    print(f"{rule:8}{right} of {int(y_test.sum())} eights, {alarms - right} false alarms  {values}")

splits = [scored(seed) for seed in range(12)]
for title, measure, at_least in (
    ("most found at a precision of 0.8", "recall", {"precision": 0.8}),
    ("highest F1", "f1", None),
):
    gains, precisions = [], []
    for val_of_split, y_val_of_split, test_of_split, target in splits:
        preds = chosen(measure, at_least, val_of_split, y_val_of_split).rule(test_of_split)
        plain, ours = (
            imbtorch.report(preds=each, target=target, measures=MEASURES) for each in (test_of_split > 0.5, preds)
        )
        gains.append(float(ours[measure]) - float(plain[measure]))
        precisions.append(float(ours["precision"]))
    print(
        f"{title}: test {measure} rises in {sum(gain > 0 for gain in gains)} of 12 splits, by "
        f"{statistics.mean(gains):.3f} in the mean; test precision {min(precisions):.2f} to {max(precisions):.2f}, "
        f"below 0.8 in {sum(each < 0.8 for each in precisions)}"
    )
