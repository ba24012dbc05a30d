"""How tests read a picture back."""

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from imbtorch.papers import Correlations
from imbtorch.statistics import Interval

mpl.use("Agg")

COUNTS = torch.tensor([[90, 10, 0], [5, 15, 0], [1, 1, 3]])
TWO = torch.tensor([[90, 10], [2, 8]])
SWEPT = torch.tensor([[[0, 40], [0, 10]], [[20, 20], [1, 9]], [[36, 4], [4, 6]], [[40, 0], [8, 2]], [[40, 0], [10, 0]]])


def correlations():
    """Three measures at two shares; b and c go together, a goes against b."""
    matrix = torch.tensor([[1.0, -0.5, 0.2], [-0.5, 1.0, 0.9], [0.2, 0.9, 1.0]], dtype=torch.float64)
    return Correlations(("a", "b", "c"), (0.1, 0.25), torch.stack((matrix, matrix / 2)))


def interval(values, level=0.9):
    """An interval from .1 below to .2 above each value."""
    return Interval(values, values - 0.1, values + 0.2, level, "posterior")


def pixels(figure):
    """Render, so that whatever is drawn late is drawn, and return what was rendered."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def shaded(ax, x, y):
    """Whether the picture is coloured, not white, at a point of the axes, or at each of several."""
    canvas = FigureCanvasAgg(ax.get_figure())
    canvas.draw()
    rendered = np.asarray(canvas.buffer_rgba())
    across, up = ax.transData.transform(np.stack((x, y), -1)).astype(int).T
    return (rendered[rendered.shape[0] - 1 - up, across, :3] < 250).any(-1)


def passes(ax, corners, parts=12):
    """Whether a line, dashed or not, is seen between each pair of neighbouring corners."""
    starts, ends = np.asarray(corners)[:-1, None], np.asarray(corners)[1:, None]
    ways = np.linspace(0.1, 0.9, parts)[:, None]
    points = (starts * (1 - ways) + ends * ways).reshape(-1, 2)
    return bool(shaded(ax, *points.T).reshape(-1, parts).any(-1).all())


def unnamed(ax):
    """The one curve that no legend names."""
    (found,) = [each for each in ax.lines if len(each.get_xdata()) > 2 and each.get_label() not in legend(ax)]
    return found


def ticks(ax, axis):
    """Texts at the ticks of an axis."""
    return [tick.get_text() for tick in getattr(ax, f"get_{axis}ticklabels")()]


def legend(ax):
    """Texts of a legend."""
    return [text.get_text() for text in ax.get_legend().get_texts()]


def recalls_beside(ax):
    """Recalls that are read off the points beside the rows of a confusion matrix, from the first row on."""
    (panel,) = [each for each in ax.child_axes if each.get_xlabel().startswith("Recall")]
    (points,) = [each for each in panel.lines if each.get_marker() == "o"]
    rows = np.argsort(points.get_ydata())
    assert panel.get_ylim() == ax.get_ylim()
    assert np.array(points.get_ydata())[rows].tolist() == list(range(len(rows)))
    return np.array(points.get_xdata())[rows].tolist()


def cut_off(figure):
    """Whether something that is drawn lies outside of the figure; a pixel may be lost."""
    FigureCanvasAgg(figure).draw()
    drawn, whole = figure.get_tightbbox().padded(-1 / figure.dpi), figure.get_size_inches()
    return drawn.x0 < 0 or drawn.y0 < 0 or drawn.x1 > whole[0] or drawn.y1 > whole[1]


def line(ax, label):
    """The one line of a label."""
    (found,) = [drawn for drawn in ax.lines if drawn.get_label() == label]
    return found
