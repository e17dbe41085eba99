"""Suggestions for unknown words: the known word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST_PREFIX = 3
"""Minimum length of a prefix: shorter words are the beginning of too many others."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint, if a known word is similar."""
    found = closest(word, known)
    return f"did you mean '{found}'?" if found else ""


def closest(word: str, known: Iterable[str]) -> str:
    """The most similar known word; empty if none is similar.

    A word is similar if it differs only in case or separators, if one of the two is a prefix of the other, or if there
    are few typing errors. For words with dots, the parts after the last dot are compared, and the same dialect is
    preferred.
    """
    dialect, _, plain = word.rpartition(".")
    best: tuple[tuple[int, int, str], str] | None = None
    for candidate in known:
        of, _, name = candidate.rpartition(".")
        rank = _rank(_plain(plain), _plain(name))
        if rank is not None:
            key = (rank, int(bool(dialect) and of != dialect), candidate)
            best = min(best, (key, candidate)) if best else (key, candidate)
    return best[1] if best else ""


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")


def _rank(word: str, known: str) -> int | None:
    """Distance of two words, smaller is more similar; None if they have little in common."""
    if word == known:
        return 0
    if word.replace("_", "") == known.replace("_", ""):
        return 1
    if len(word) > SHORTEST_PREFIX and sorted(word) == sorted(known) and distance(word, known) <= 2:
        return 5  # the same letters in another order
    errors = distance(word, known)
    if errors <= max(1, min(len(word), len(known)) // 4) and min(len(word), len(known)) > 2:
        return 10 * errors if len(word) > SHORTEST_PREFIX or errors == 0 else 10 * errors + 5
    if len(word) >= SHORTEST_PREFIX and known.startswith(word):
        return 12 + len(known) - len(word)
    if len(known) >= SHORTEST_PREFIX and word.startswith(known):
        return 15 + len(word) - len(known)
    if errors <= max(1, min(len(word), len(known)) // 3) and len(word) > SHORTEST_PREFIX:
        return 100 * errors
    return None


def distance(a: str, b: str) -> int:
    """Number of typing errors between two words: omitted, added, wrong, or transposed letters (optimal string
    alignment)."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        rows.append([i])
        for j, y in enumerate(b, 1):
            cost = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, rows[i - 2][j - 2] + 1)
            rows[i].append(cost)
    return rows[-1][-1]
