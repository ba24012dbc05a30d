"""Choose a threshold on validation scores, and report what it changes on test scores.

    pip install . scikit-learn
    python examples/two_classes.py

The data are scikit-learn's 1,797 digits; the rare class are the eights, a tenth of the images.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import imbtorch

x, y = load_digits(return_X_y=True)
x, x_test, y, y_test = train_test_split(x / 16, y == 8, test_size=0.3, stratify=y == 8, random_state=0)
x, x_val, y, y_val = train_test_split(x, y, test_size=0.43, stratify=y, random_state=0)
model = LogisticRegression().fit(x, y)
val, test = (torch.from_numpy(model.predict_proba(each)[:, 1]) for each in (x_val, x_test))

sweep = imbtorch.ThresholdSweep("iam")
sweep.update(val, torch.from_numpy(y_val))
print(sweep.table())

names = ["iam", "recall", "precision", "f1"]
for rule, preds in {"0.5": test > 0.5, "chosen": sweep.rule(test)}.items():
    found = imbtorch.report(preds=preds, target=y_test, measures=names)
    print(f"{rule:8}", *(f"{name} {found[name]:.3f} " for name in names))
