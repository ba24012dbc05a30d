"""Counts to values: every measure of the catalogue as a pure function.

All take ``[..., K, K]`` counts or rates (rows true, columns predicted) and are batched over the leading dimensions;
those that need no more also take :class:`~imbtorch.counts.Margins`. They compute in float64 and return float64 for
integer counts, the dtype of the counts for floating ones. They are differentiable, with finite gradients wherever the
value is finite.

Undefined values follow one rule. A class with neither targets nor predictions takes no part in a mean (nan under
``average="none"``). A class that has targets *or* predictions counts 0 where its ratio is 0/0. ``average="min"``,
balanced accuracy, G-mean and weighted accuracy go over the classes with targets: a class that was predicted once but
never came would make the worst class 0 for a whole run. MCC and RCI are 0 at 0/0. Counts that are all zero give
nan, and so do counts that cannot be counts: a nan or negative cell, margins that contradict one another
(:func:`~imbtorch.counts.margins` says when).
"""

from imbtorch.measures.overall import *
from imbtorch.measures.overall import __all__ as _overall
from imbtorch.measures.per_class import *
from imbtorch.measures.per_class import __all__ as _per_class
from imbtorch.measures.shared import Average as Average
from imbtorch.measures.shared import ClassAverage as ClassAverage
from imbtorch.measures.shared import Measure as Measure
from imbtorch.measures.shared import class_mean as class_mean
from imbtorch.measures.two_classes import *
from imbtorch.measures.two_classes import __all__ as _two_classes

__all__ = [*_overall, *_per_class, *_two_classes]
