"""Placement of labels beside points of a chart, so that they cover neither points nor other labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shlo_jit.pictures.drawing import text_width


class Box(NamedTuple):
    """A rectangle in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """Area in pixels that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return width * height if width > 0 and height > 0 else 0.0


class Circle(NamedTuple):
    x: float
    y: float
    radius: float

    @property
    def box(self) -> Box:
        return Box(self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius)

    def covers(self, box: Box) -> bool:
        """Whether the circle and the box overlap."""
        near_x, near_y = min(max(self.x, box.left), box.right), min(max(self.y, box.top), box.bottom)
        return math.hypot(near_x - self.x, near_y - self.y) < self.radius


class Place(NamedTuple):
    """Start of a label's base line, and a leader line to its point if the label is not next to it."""

    x: float
    y: float
    line: tuple[float, float, float, float] | None


GAPS = (3, 16, 32, 52, 76)
"""Candidate distances in pixels between a point and its label; from the second on, a leader line joins them."""
DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225)
"""Candidate directions in degrees, clockwise from the right."""


class Labels:
    """Free space for labels in a plane."""

    def __init__(self, plane: Box, circles: Sequence[Circle], taken: Sequence[Box]) -> None:
        self.plane = plane
        self.circles = circles
        self.taken = [*taken]

    def place(self, circle: Circle, text: str, size: float) -> Place:
        """The nearest free place for the label of a circle; if none is free, the one that covers least."""
        width, height = text_width(text, size), size + 2
        best = min(self._candidates(circle, width, height), key=lambda row: row[0])
        _, box, line = best
        self.taken.append(box)
        return Place(box.left, box.bottom - 3, line)

    def _candidates(
        self, circle: Circle, width: float, height: float
    ) -> Iterator[tuple[tuple[float, int], Box, tuple[float, float, float, float] | None]]:
        number = 0
        for gap in GAPS:
            for angle in DIRECTIONS:
                across, down = math.cos(math.radians(angle)), math.sin(math.radians(angle))
                away = circle.radius + gap
                x, y = circle.x + away * across, circle.y + away * down
                left = x - width / 2 * (1 - across)  # right of the place, left of it, or centered on it
                top = y - height / 2 * (1 - down)
                box = Box(left, top, left + width, top + height)
                start = circle.x + circle.radius * across, circle.y + circle.radius * down
                yield (self._covered(box), number), box, (*start, x, y) if gap > GAPS[0] else None
                number += 1

    def _covered(self, box: Box) -> float:
        """Penalty of a place: pixels of other labels that it would cover, or that are outside of the plane."""
        area = (box.right - box.left) * (box.bottom - box.top)
        outside = area - box.overlap(self.plane)
        circles = sum(max(box.overlap(c.box), 1.0) for c in self.circles if c.covers(box))
        return outside + circles + sum(box.overlap(other) for other in self.taken)
