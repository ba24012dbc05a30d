"""One call for a comparison of saved predictions, of one source or two."""

import imbtorch

READING = ("class_names", "positive", "ignore", "missing", "encoding", "decimal", "head")


def compared(old, new=None, *, measure, target, preds=None, scores=None, cluster=None, **arguments):
    """Compare two columns of one source, or the same column of two."""
    names = preds or scores
    names = [names] * 2 if isinstance(names, str) else names
    reading = {name: arguments.pop(name) for name in READING if name in arguments}
    other = None if new is None else imbtorch.Predictions(new, target=target, **reading)
    data = imbtorch.Predictions(old, target=target, cluster=cluster, **reading)
    return data.compare(*names, measure, other=other, **arguments)
