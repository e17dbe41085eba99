"""Diffrax, with Lineax, Optimistix and Equinox: adaptive and stiff solvers, adjoints, events, noise, roots and minima."""

from __future__ import annotations

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx

Array = jax.Array
jax.config.update("jax_enable_x64", True)
"""Steps are chosen by comparing an error with a bound: with 64 bits, rounding does not change their number."""


def _hunters(t: Any, y: Any, args: Any) -> Any:
    prey, hunters = y
    a, b, c, d = args
    return a * prey - b * prey * hunters, -c * hunters + d * prey * hunters


_RATES = (0.9, 0.4, 1.1, 0.3)
_FIRST = (jnp.array(8.0), jnp.array(2.0))


def adaptive_steps() -> Any:
    solve = lambda solver, args: diffrax.diffeqsolve(  # noqa: E731
        diffrax.ODETerm(_hunters), solver, 0.0, 8.0, 0.1, _FIRST, args=args,
        saveat=diffrax.SaveAt(ts=jnp.linspace(0, 8, 9)), stepsize_controller=diffrax.PIDController(1e-4, 1e-4),
    )  # fmt: skip
    kinds = diffrax.Tsit5(), diffrax.Dopri8(), diffrax.Heun(), diffrax.Bosh3()
    found = [jax.jit(solve)(kind, _RATES) for kind in kinds]
    return [(f.ys, f.stats["num_steps"]) for f in found]


def adjoints() -> Any:
    """Computes the gradient by recursive checkpoints, by the backward equation, and forwards."""
    target = jnp.array([3.0, 1.0])

    def loss(args: Any, adjoint: Any) -> Array:
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(_hunters), diffrax.Tsit5(), 0.0, 3.0, 0.1, _FIRST, args=args,
            stepsize_controller=diffrax.PIDController(1e-6, 1e-6), adjoint=adjoint, max_steps=256,
        )  # fmt: skip
        return jnp.sum((jnp.stack([y[-1] for y in found.ys]) - target) ** 2)

    args = tuple(jnp.array(r) for r in _RATES)
    backward = [
        jax.jit(jax.value_and_grad(lambda a, k=kind: loss(a, k)))(args)
        for kind in (diffrax.RecursiveCheckpointAdjoint(), diffrax.BacksolveAdjoint())
    ]
    forward = jax.jit(jax.jacfwd(lambda a: loss(a, diffrax.ForwardMode())))(args)
    return backward, forward


def stiff_steps() -> Any:
    """Robertson's reactions by an implicit method, whose Newton steps solve linear systems."""

    def reactions(t: Any, y: Array, k: Array) -> Array:
        first = -k[0] * y[0] + k[2] * y[1] * y[2]
        last = k[1] * y[1] ** 2
        return jnp.stack([first, -first - last, last])

    found = jax.jit(
        lambda k: diffrax.diffeqsolve(
            diffrax.ODETerm(reactions), diffrax.Kvaerno5(), 0.0, 100.0, 2e-4, jnp.array([1.0, 0, 0]), args=k,
            saveat=diffrax.SaveAt(ts=jnp.array([0.0, 1e-2, 1.0, 100.0])),
            stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-8),
        )
    )(jnp.array([0.04, 3e7, 1e4]))  # fmt: skip
    return found.ys, found.stats["num_accepted_steps"]


def events_and_noise() -> Any:
    """A ball until it touches the ground, and a stochastic equation on one Brownian path."""

    def fall(t: Any, y: Array, args: Any) -> Array:
        return jnp.stack([y[1], -9.81 - 0.1 * y[1]])

    event = diffrax.Event(lambda t, y, args, **_: y[0], optx.Newton(1e-8, 1e-8))
    ball = jax.jit(
        lambda h: diffrax.diffeqsolve(
            diffrax.ODETerm(fall), diffrax.Tsit5(), 0.0, jnp.inf, 0.05, jnp.stack([h, 0.0]), event=event,
            stepsize_controller=diffrax.PIDController(1e-7, 1e-7),
        )
    )(10.0)  # fmt: skip
    path = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-3, (2,), jax.random.key(0))
    terms = diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, args: -y), diffrax.ControlTerm(lambda t, y, args: 0.3 * jnp.eye(2), path)
    )
    walk = jax.jit(
        lambda y: diffrax.diffeqsolve(
            terms, diffrax.Heun(), 0.0, 1.0, 0.02, y, saveat=diffrax.SaveAt(ts=jnp.linspace(0, 1, 5))
        )
    )(jnp.array([1.0, -1.0]))
    return ball.ts, ball.ys, walk.ys, path.evaluate(0.2, 0.7)


def interpolated_controls() -> Any:
    """A neural controlled equation by hand: a spline through data drives a small network. Steps have one length: at the
    knots of the spline, rounding decides which adaptive step is rejected."""
    ts = jnp.linspace(0, 1, 10)
    ys = jnp.stack([jnp.sin(5 * ts), ts], -1)
    spline = diffrax.CubicInterpolation(ts, diffrax.backward_hermite_coefficients(ts, ys))
    w = jax.random.normal(jax.random.key(0), (4, 8)) / 2

    def loss(w: Array) -> Array:
        term = diffrax.ControlTerm(lambda t, z, w: jnp.tanh(z @ w).reshape(4, 2), spline).to_ode()
        found = diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.05, jnp.ones(4), args=w)
        return (found.ys**2).sum()

    return jax.jit(jax.value_and_grad(loss))(w), spline.evaluate(0.33), spline.derivative(0.33)


def linear_solves() -> Any:
    a = jax.random.normal(jax.random.key(1), (6, 6)) + 4 * jnp.eye(6)
    tall = jax.random.normal(jax.random.key(2), (9, 4))
    b = jnp.arange(6.0)
    definite = lx.MatrixLinearOperator(a @ a.T, lx.positive_semidefinite_tag)
    solve = lambda op, v, solver: jax.jit(lambda v: lx.linear_solve(op, v, solver).value)(v)  # noqa: E731
    full = lx.MatrixLinearOperator(a)
    bands = lx.TridiagonalLinearOperator(jnp.full(6, 4.0), jnp.ones(5), -jnp.ones(5))
    function = lx.FunctionLinearOperator(lambda v: a @ v, jax.ShapeDtypeStruct((6,), b.dtype))
    return (
        [
            solve(definite, b, s)
            for s in (lx.Cholesky(), lx.CG(1e-10, 1e-10), lx.LU(), lx.AutoLinearSolver(well_posed=True))
        ],
        [solve(full, b, s) for s in (lx.LU(), lx.QR(), lx.SVD(), lx.GMRES(1e-10, 1e-10), lx.BiCGStab(1e-10, 1e-10))],
        [solve(lx.MatrixLinearOperator(tall), jnp.arange(9.0), s) for s in (lx.QR(), lx.SVD())],
        solve(bands, b, lx.Tridiagonal()),
        solve(function, b, lx.GMRES(1e-10, 1e-10)),
        jax.grad(lambda m: lx.linear_solve(lx.MatrixLinearOperator(m), b).value.sum())(a),
    )


def roots_and_minima() -> Any:
    """Fixed points, roots, least squares and minima, with implicit derivatives."""

    def system(y: Array, a: Array) -> Array:
        return jnp.stack([y[0] ** 2 + y[1] ** 2 - a, y[0] - y[1] ** 3])

    root = lambda a, solver: optx.root_find(system, solver, jnp.array([1.0, 0.5]), args=a).value  # noqa: E731
    t = jnp.linspace(0, 2, 20)
    data = 2.5 * jnp.exp(-1.3 * t) + 0.4
    residual = lambda p, _: p[0] * jnp.exp(-p[1] * t) + p[2] - data  # noqa: E731
    fit = lambda solver: optx.least_squares(residual, solver, jnp.ones(3), max_steps=200).value  # noqa: E731
    valley = lambda y, _: 100 * (y[1] - y[0] ** 2) ** 2 + (1 - y[0]) ** 2  # noqa: E731
    return (
        [
            jax.jit(jax.jacrev(lambda a, s=s: root(a, s)))(2.0)
            for s in (optx.Newton(1e-9, 1e-9), optx.Chord(1e-9, 1e-9))
        ],
        jax.jit(
            lambda a: optx.fixed_point(lambda y, a: jnp.cos(a * y), optx.FixedPointIteration(1e-9, 1e-9), 0.5, a).value
        )(0.9),
        [jax.jit(lambda s=s: fit(s))() for s in (optx.LevenbergMarquardt(1e-9, 1e-9), optx.Dogleg(1e-9, 1e-9))],
        jax.jit(lambda: optx.minimise(valley, optx.BFGS(1e-8, 1e-8), jnp.array([-1.0, 1.0])).value)(),
        jax.jit(
            lambda: (
                optx.root_find(
                    lambda y, _: y**3 - 2, optx.Bisection(1e-9, 1e-9), 1.0, options={"lower": 0.0, "upper": 2.0}
                ).value
            )
        )(),
    )
