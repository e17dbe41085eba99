"""Example programs of the package: `shlo-jit run --example mlp --random`."""

from __future__ import annotations

from pathlib import Path

from shlo_jit.suggest import did_you_mean

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Names of all examples."""
    return sorted(path.stem for path in FOLDER.glob("*.mlir"))


def path(name: str) -> Path:
    """The file of an example. Raises ValueError for an unknown name."""
    if name not in names():
        hint = did_you_mean(name, names()) or f"examples are {', '.join(names())}"
        raise ValueError(f"no example {name!r}; {hint}")
    return FOLDER / f"{name}.mlir"


def summary(name: str) -> str:
    """One-line description of an example: its first comment."""
    with path(name).open(encoding="utf-8") as file:
        return file.readline().removeprefix("//").strip()
