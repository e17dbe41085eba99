"""Random schedules: the moves of a program's steps, changed at random. Many of them are illegal."""

from __future__ import annotations

import copy
import random
from typing import Any

from random_convolutions import changed_convolution
from random_products import changed_product

Moves = dict[str, list[dict[str, Any]]]
LANES, UNROLLS = (2, 4, 8, 16, 32), (2, 3, 4, 8, 16)


def changed(moves: Moves, seed: int) -> Moves:
    """The moves with one to three changes in each nest."""
    rng, found = random.Random(seed), copy.deepcopy(moves)
    for nest in found.values():
        for _ in range(rng.randint(1, 3)):
            _change(nest, rng)
    return found


def changed_steps(moves: Moves, seed: int) -> Moves:
    """The moves with changes in one or two steps or stages of any kind, often in stages (`2/0`)."""
    rng = random.Random(seed)
    stages = [label for label in moves if "/" in label]
    among = stages if stages and rng.random() < 0.5 else sorted(moves)
    chosen = rng.sample(among, k=min(len(among), rng.choice((1, 1, 2))))
    found: Moves = {}
    for label, own in moves.items():
        if label not in chosen:
            found[label] = own
        elif any(move.get("loop") in ("lines", "features", "width") for move in own):
            found[label] = changed_convolution(own, rng.randrange(1 << 30))
        elif any(move["move"] == "use_leaf" for move in own):
            found[label] = changed_product(own, {"m": 6, "n": 16, "k": 4}, rng.randrange(1 << 30))
        else:
            found |= changed({label: own}, rng.randrange(1 << 30))
    return found


def _change(nest: list[dict[str, Any]], rng: random.Random) -> None:
    loops = next((m["loops"] for m in nest if m["move"] == "reorder"), [])
    if nest and rng.random() < 0.3:
        nest.pop(rng.randrange(len(nest)))
        return
    if loops and rng.random() < 0.2:
        nest.append(_new(loops, rng))
        return
    if not nest:
        return
    move = rng.choice(nest)
    if move["move"] == "reorder":
        rng.shuffle(move["loops"])
    elif move["move"] == "vectorize":
        move[rng.choice(("loop", "lanes"))] = (
            rng.choice(LANES) if rng.random() < 0.5 or not loops else rng.choice(loops)
        )
    elif move["move"] == "unroll":
        move["by"] = rng.choice(UNROLLS)
    elif move["move"] == "split":
        move["by"] = rng.choice((1, 2, 3, 5)) * max(1, move["by"] // rng.choice((1, 2, 4, 8)))
    elif move["move"] == "parallel":
        move["grain"] = rng.randint(1, 2 * move["grain"] + 1)
    elif move["move"] == "prefetch":
        move["distance"] = rng.choice((64, 4096, 1 << 20))


def _new(loops: list[int], rng: random.Random) -> dict[str, Any]:
    loop = rng.choice(loops)
    return rng.choice(
        (
            {"move": "vectorize", "loop": loop, "lanes": rng.choice(LANES)},
            {"move": "unroll", "loop": loop, "by": rng.choice(UNROLLS)},
            {"move": "parallel", "grain": rng.choice((1, 2, 5, 100))},
            {"move": "split", "loop": loop, "by": rng.choice((8, 16, 32, 96))},
            {"move": "prefetch", "load": rng.randint(0, 3), "distance": 512},
            {"move": "keep", "value": rng.randint(0, 6)},
            {"move": "stream", "store": 0},
            {"move": "transpose", "across": loop, "side": 8, "tiles": rng.choice((1, 4))},
            {"move": "peel"},
        )
    )
