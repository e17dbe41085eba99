"""Trains the network of digits.mlir and writes it, in a minute: python train.py (needs JAX).

The network is a function of one picture; its weights are constants of the program.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from draw import SIZE, draw

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    raise SystemExit("train.py needs JAX: pip install jax") from None

STEPS, BATCH = 1500, 128


def convolve(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def scores(weights, pictures):
    """ui8[n, 28, 28] -> f32[n, 10]."""
    x = pictures.astype(jnp.float32)[..., None] / 255
    x = pool(jax.nn.relu(convolve(x, weights["w1"]) + weights["b1"]))
    x = pool(jax.nn.relu(convolve(x, weights["w2"]) + weights["b2"]))
    return x.reshape(len(x), -1) @ weights["w3"] + weights["b3"]


def initial(random: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"w1": (3, 3, 1, 8), "b1": (8,), "w2": (3, 3, 8, 16), "b2": (16,), "w3": (7 * 7 * 16, 10), "b3": (10,)}
    return {
        name: (random.normal(size=shape) * np.sqrt(2 / max(1, np.prod(shape[:-1])))).astype(np.float32)
        if name[0] == "w"
        else np.zeros(shape, np.float32)
        for name, shape in shapes.items()
    }


def loss(weights, pictures, digits):
    return -jnp.mean(jax.nn.log_softmax(scores(weights, pictures))[jnp.arange(len(digits)), digits])


@jax.jit
def step(weights, mean, square, n, pictures, digits):
    """One step of Adam."""
    gradient = jax.grad(loss)(weights, pictures, digits)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, gradient)
    rate = 3e-3 * (1 - n / STEPS) * jnp.sqrt(1 - 0.999 ** (n + 1)) / (1 - 0.9 ** (n + 1))
    weights = jax.tree.map(lambda w, m, s: w - rate * m / (jnp.sqrt(s) + 1e-8), weights, mean, square)
    return weights, mean, square


def pictures_of(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    digits = random.integers(0, 10, count)
    return np.stack([draw(int(d), random) for d in digits]), digits


def main() -> None:
    random = np.random.default_rng(1)
    weights = initial(random)
    mean = jax.tree.map(np.zeros_like, weights)
    square = jax.tree.map(np.zeros_like, weights)
    for n in range(STEPS):
        weights, mean, square = step(weights, mean, square, n, *pictures_of(random, BATCH))
    pictures, digits = pictures_of(random, 2000)
    right = np.mean(np.argmax(scores(weights, pictures), 1) == digits)

    def classify(picture):
        return jax.nn.softmax(scores(weights, picture[None])[0])

    text = jax.jit(classify).lower(jax.ShapeDtypeStruct((SIZE, SIZE), np.uint8)).as_text()
    main, private, rest = text.partition("  func.func private")
    text = main.replace("%arg0", "%picture") + private + rest
    note = f"// A picture of a digit -> how likely it is each of the ten. Right of 2000 pictures: {right:.1%}."
    Path(__file__).with_name("digits.mlir").write_text(f"{note}\n{text}")
    print(note)


if __name__ == "__main__":
    main()
