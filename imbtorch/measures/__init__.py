"""Measures of the catalogue, as pure functions of counts.

All take ``[..., K, K]`` counts or rates (rows true, columns predicted), batched over the leading dimensions. Measures
that do not read single cells off the diagonal also take :class:`~imbtorch.counts.Margins`. They compute in float64 and
return float64 for integer counts, and the dtype of the counts otherwise. They are differentiable, with finite gradients
wherever the value is finite.

Undefined values follow one rule. A class with neither targets nor predictions takes no part in a mean. Its own value is
nan, under ``average="none"``, and under ``"binary"`` where its ratio is 0/0; metrics and reports of two classes count 0
there, so that no epoch's value is nan. A class that has targets *or* predictions counts 0 where its ratio is 0/0.
``average="min"``, balanced accuracy, G-mean and weighted accuracy only read classes with targets; otherwise a class
that is predicted once but has no targets would make the worst class 0 for a whole run. MCC and RCI are 0 at 0/0. Counts
that are all zero give nan, as do impossible counts: a nan or negative cell, or margins that contradict each other (see
:func:`~imbtorch.counts.margins`).
"""

from imbtorch.counts import Measure as Measure
from imbtorch.measures.overall import *
from imbtorch.measures.overall import __all__ as _overall
from imbtorch.measures.per_class import *
from imbtorch.measures.per_class import __all__ as _per_class
from imbtorch.measures.shared import Average as Average
from imbtorch.measures.shared import ClassAverage as ClassAverage
from imbtorch.measures.shared import class_mean as class_mean
from imbtorch.measures.two_classes import *
from imbtorch.measures.two_classes import __all__ as _two_classes

__all__ = [*_overall, *_per_class, *_two_classes]
