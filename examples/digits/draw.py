"""Draws digits as a hand might: tilted, shifted, thick or thin, on noise.

    python draw.py 7 seven.pgm [SEED]

writes a picture of 28 x 28 pixels. `train.py` learns from the same pictures.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

SIZE = 28
GLYPHS = """
01110 00100 01110 11111 00010 11111 00110 11111 01110 01110
10001 01100 10001 00010 00110 10000 01000 00001 10001 10001
10011 00100 00001 00100 01010 11110 10000 00010 10001 10001
10101 00100 00010 00010 10010 00001 11110 00100 01110 01111
11001 00100 00100 00001 11111 00001 10001 01000 10001 00001
10001 00100 01000 10001 00010 10001 10001 01000 10001 00010
01110 01110 11111 01110 00010 01110 01110 01000 01110 01100
"""
"""Seven lines of the ten digits."""


def _glyph(digit: int) -> np.ndarray:
    """The digit in 5 x 7 points, with an empty border."""
    lines = [line.split()[digit] for line in GLYPHS.split("\n") if line]
    return np.pad(np.array([[float(point) for point in line] for line in lines]), 1)


def _between(image: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Interpolates the image at positions between its points; 0 outside."""
    rows, columns = image.shape
    inside = (y >= 0) & (y < rows - 1) & (x >= 0) & (x < columns - 1)
    y, x = np.clip(y, 0, rows - 1.001), np.clip(x, 0, columns - 1.001)
    i, j = y.astype(int), x.astype(int)
    y, x = y - i, x - j
    upper = image[i, j] * (1 - x) + image[i, j + 1] * x
    lower = image[i + 1, j] * (1 - x) + image[i + 1, j + 1] * x
    return np.where(inside, upper * (1 - y) + lower * y, 0)


def draw(digit: int, random: np.random.Generator) -> np.ndarray:
    """A picture: ui8[28, 28], the digit white on black."""
    glyph = _glyph(digit)
    angle, shear = random.uniform(-0.25, 0.25), random.uniform(-0.2, 0.2)
    height, width = random.uniform(15, 23), random.uniform(10, 17)
    y, x = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2 + random.uniform(-3, 3, (2, 1, 1))
    y, x = np.cos(angle) * y + np.sin(angle) * x, np.cos(angle) * x - np.sin(angle) * y
    x = x + shear * y
    strokes = _between(glyph, y * 7 / height + 4, x * 5 / width + 3)
    ink = np.clip((strokes - random.uniform(0.25, 0.45)) * 4, 0, 1)
    picture = ink * random.uniform(0.7, 1) + random.normal(0, 0.05, ink.shape)
    return (np.clip(picture, 0, 1) * 255).astype(np.uint8)


def main() -> None:
    digit, path, seed = [*sys.argv[1:], "0"][:3] if len(sys.argv) in (3, 4) else ("", "", "")
    if digit not in tuple("0123456789") or not seed.isdecimal():
        sys.exit("usage: draw.py DIGIT PICTURE.pgm [SEED]")
    picture = draw(int(digit), np.random.default_rng(int(seed)))
    try:
        Path(path).write_bytes(f"P5 {SIZE} {SIZE} 255\n".encode() + picture.tobytes())
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")


if __name__ == "__main__":
    main()
