"""A line chart as inline SVG whose colours come from the page's style, so that it follows light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence

from matplotlib.ticker import MaxNLocator

WIDTH, HEIGHT = 360, 236
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 10, 40


class Chart:
    """Axes that lines, bands and dots are put on; what is drawn first lies below.

    Args:
        title: above the picture.
        x_label, y_label: with the unit.
        x_range, y_range: (low, high).
        x_format, y_format: how a tick is written.
    """

    def __init__(
        self,
        *,
        title: str,
        x_label: str,
        y_label: str,
        x_range: tuple[float, float],
        y_range: tuple[float, float],
        x_format: Callable[[float], str] = "{:g}".format,
        y_format: Callable[[float], str] = "{:g}".format,
    ) -> None:
        self._title = title
        self._labels = (x_label, y_label)
        self._x_range, self._y_range = x_range, y_range
        self._formats = (x_format, y_format)
        self._marks: list[str] = []
        self._legend: list[tuple[str, str]] = []

    def line(self, x: Sequence[float], y: Sequence[float], style: str, name: str | None = None) -> None:
        """A line; it breaks where y is not finite. With a name it enters the legend, also where it is empty."""
        pen_is_down, path = False, []
        for point in zip(x, y):
            if not all(map(math.isfinite, point)):
                pen_is_down = False
                continue
            path.append(f"{'L' if pen_is_down else 'M'}{self._x(point[0]):.1f} {self._y(point[1]):.1f}")
            pen_is_down = True
        if path:
            self._marks.append(f'<path class="line {style}" d="{"".join(path)}"/>')
        if name:
            self._legend.append((style, name if path else f"{name}: no such point"))

    def band(self, x: Sequence[float], low: Sequence[float], high: Sequence[float], style: str) -> None:
        """The area between two lines, over the points that have both."""
        points = [entry for entry in zip(x, low, high) if all(map(math.isfinite, entry))]
        if len(points) < 2:
            return
        outline = [(at, up) for at, _, up in points] + [(at, down) for at, down, _ in reversed(points)]
        corners = " ".join(f"{self._x(at):.1f},{self._y(value):.1f}" for at, value in outline)
        self._marks.append(f'<polygon class="band {style}" points="{corners}"/>')

    def dots(self, x: Iterable[float], y: Iterable[float], radius: Iterable[float], style: str) -> None:
        """Dots with radii in units of the picture, which is 360 wide."""
        for at, value, size in zip(x, y, radius):
            self._marks.append(
                f'<circle class="dot {style}" cx="{self._x(at):.1f}" cy="{self._y(value):.1f}" r="{size:.1f}"/>'
            )

    def render(self, caption: str) -> str:
        """
        Args:
            caption: HTML.
        """
        title = html.escape(self._title)
        legend = "".join(
            f'<li><svg class="key" viewBox="0 0 26 10" aria-hidden="true"><path class="line {style}" d="M1 5H25"/>'
            f"</svg>{html.escape(name)}</li>"
            for style, name in self._legend
        )
        return (
            f'<figure class="chart"><h4>{title}</h4>'
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{self._axes()}{"".join(self._marks)}'
            f'</svg>{f"<ul class=legend>{legend}</ul>" if legend else ""}<figcaption>{caption}</figcaption></figure>'
        )

    def _axes(self) -> str:
        x_label, y_label = map(html.escape, self._labels)
        bottom, right, middle = HEIGHT - BOTTOM, WIDTH - RIGHT, (TOP + HEIGHT - BOTTOM) / 2
        parts = []
        for value in _ticks(self._y_range):
            y = self._y(value)
            parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{self._formats[1](value)}</text>')
        for value in _ticks(self._x_range):
            x = self._x(value)
            parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{self._formats[0](value)}</text>')
        parts.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{x_label}</text>')
        parts.append(
            f'<text transform="translate(10 {middle}) rotate(-90)" text-anchor="middle">{y_label}</text>'
        )
        return "".join(parts)

    def _x(self, value: float) -> float:
        low, high = self._x_range
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        low, high = self._y_range
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def span(values: Iterable[float], *, at_least: float) -> tuple[float, float]:
    """A range that holds the finite values with a margin, (0, 1) where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    margin = max((high - low) * 0.08, (at_least - (high - low)) / 2)
    return low - margin, high + margin


def _ticks(limits: tuple[float, float]) -> list[float]:
    low, high = limits
    slack = (high - low) * 1e-9
    values = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [round(float(value), 10) for value in values if low - slack <= value <= high + slack]
