"""Linear algebra, transforms, convolutions, sparse matrices, differential equations, optimisation, statistics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import lax
from jax.experimental import sparse
from jax.experimental.ode import odeint
from jax.scipy.optimize import minimize

Array = jax.Array


def _well_conditioned(n: int, seed: int = 0) -> Array:
    return jax.random.normal(jax.random.key(seed), (n, n)) + 2 * n**0.5 * jnp.eye(n)


def factorizations() -> Any:
    """Ambiguities of factorizations are removed before results are compared."""
    a = _well_conditioned(12)
    symmetric = a + a.T
    positive = a @ a.T / 12
    values, vectors = jnp.linalg.eigh(symmetric)
    u, s, vt = jnp.linalg.svd(a[:, :7], full_matrices=False)
    q, r = jnp.linalg.qr(a)
    p, low, up = jsp.linalg.lu(a)
    return (
        jnp.linalg.cholesky(positive),
        jax.vmap(jnp.linalg.cholesky)(jnp.stack([positive, positive + jnp.eye(12)])),
        values,
        vectors @ jnp.diag(values) @ vectors.T,
        s,
        (u * s) @ vt,
        q @ r,
        jnp.abs(r),
        p @ low @ up,
        jnp.sort_complex(jnp.linalg.eigvals(a)),
        jsp.linalg.cho_solve(jsp.linalg.cho_factor(positive), jnp.ones(12)),
        jsp.linalg.solve_triangular(jnp.tril(a), jnp.ones((12, 2)), lower=True),
    )


def solving() -> Any:
    a = _well_conditioned(10, 1)
    b = jax.random.normal(jax.random.key(2), (10, 3))
    batch = jnp.stack([a, a.T, a + jnp.eye(10)])
    return (
        jnp.linalg.solve(a, b),
        jax.jit(jnp.linalg.solve)(batch, jnp.stack([b] * 3)),
        jnp.linalg.inv(a),
        jnp.linalg.det(a / 5),
        jnp.linalg.slogdet(batch),
        jnp.linalg.lstsq(a[:, :4], b)[0],
        jnp.linalg.pinv(a[:, :6]),
        jnp.linalg.matrix_power(a / 6, 5),
        jsp.linalg.expm(a / 10),
        jsp.linalg.block_diag(a[:2, :2], b[:1]),
        jax.grad(lambda m: jnp.linalg.slogdet(m)[1])(a),
        jax.grad(lambda m: jnp.linalg.eigvalsh(m + m.T)[-1])(a),
        jax.jacfwd(lambda m: jnp.linalg.svd(m, compute_uv=False))(a[:4, :3]),
        jax.grad(lambda m: jnp.linalg.cholesky(m @ m.T).sum())(a),
        jax.grad(lambda m: jnp.linalg.solve(m, b).sum())(a),
        jsp.sparse.linalg.cg(lambda v: a @ (a.T @ v), b[:, 0], tol=1e-7)[0],
        jsp.sparse.linalg.gmres(lambda v: a @ v, b[:, 0], tol=1e-6)[0],
        jsp.sparse.linalg.bicgstab(lambda v: a @ v, b[:, 0], tol=1e-6)[0],
        lax.custom_linear_solve(lambda v: a @ v, b[:, 0], lambda mv, v: jnp.linalg.solve(a, v)),
        lax.linalg.tridiagonal_solve(jnp.ones(10), 4 + jnp.arange(10.0), jnp.ones(10), b),
        jnp.einsum("ij,jk,lk->il", a, b, b),
        jnp.tensordot(batch, b, 1),
    )


def transforms() -> Any:
    x = jax.random.normal(jax.random.key(0), (6, 20))
    z = x + 1j * x[::-1]
    signal = jnp.sin(jnp.arange(200) * 0.3)
    return (
        jnp.fft.fft(x),
        jnp.fft.ifft2(z),
        jnp.fft.rfft(x, 16),
        jnp.fft.irfft(jnp.fft.rfft(x)[:, :8]),
        jnp.fft.rfftn(x),
        jnp.fft.fftshift(jnp.fft.fftfreq(9)),
        jax.grad(lambda v: (jnp.abs(jnp.fft.rfft(v)) ** 2).sum())(x),
        jsp.signal.stft(signal, nperseg=32)[2],
        jsp.signal.istft(jsp.signal.stft(signal, nperseg=32)[2], nperseg=32)[1],
        jsp.signal.fftconvolve(x, x[:2, :3], mode="same"),
        jsp.signal.welch(signal, nperseg=64)[1],
        jsp.fft.dct(x, norm="ortho"),
        jax.vmap(jnp.fft.fft2)(z.reshape(3, 2, 20)),
    )


def convolutions() -> Any:
    """Runs all kinds of convolutions: 1-D, images, strides, dilation, transposed, groups, volumes."""
    line = jax.random.normal(jax.random.key(0), (50,))
    picture = jax.random.uniform(jax.random.key(1), (2, 24, 20, 3))
    kernel = jax.random.normal(jax.random.key(2), (3, 3, 3, 8)) / 5
    numbers = lax.conv_dimension_numbers(picture.shape, kernel.shape, ("NHWC", "HWIO", "NHWC"))
    conv = lambda *a, **k: lax.conv_general_dilated(picture, kernel, *a, dimension_numbers=numbers, **k)  # noqa: E731
    volume = jax.random.normal(jax.random.key(3), (1, 6, 7, 8, 2))
    cube = jax.random.normal(jax.random.key(4), (3, 3, 3, 2, 4))
    in3 = lax.conv_dimension_numbers(volume.shape, cube.shape, ("NHWDC", "HWDIO", "NHWDC"))
    row = lax.conv_general_dilated(
        line.reshape(1, 50, 1), jnp.ones((5, 1, 2)) / 5, (2,), [(1, 3)], dimension_numbers=("NWC", "WIO", "NWC")
    )
    grouped = lax.conv_general_dilated(
        jnp.concatenate([picture] * 2, -1), kernel, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=2
    )
    return (
        jnp.convolve(line, jnp.ones(7) / 7, mode="same"),
        jnp.correlate(line, line[:9], mode="full"),
        jsp.signal.convolve2d(picture[0, :, :, 0], jnp.outer(jnp.arange(3.0), jnp.ones(3)), mode="same"),
        jsp.signal.convolve(picture[..., 0], jnp.ones((1, 3, 2)), mode="valid"),
        lax.conv(jnp.transpose(picture, (0, 3, 1, 2)), jnp.transpose(kernel, (3, 2, 0, 1)), (1, 1), "SAME"),
        conv((1, 1), "SAME"),
        conv((2, 3), "VALID"),
        conv((1, 1), "VALID", rhs_dilation=(4, 3)),
        conv((1, 1), ((0, 0), (1, 1)), lhs_dilation=(2, 2)),
        lax.conv_transpose(picture, kernel, (2, 2), "SAME"),
        row,
        grouped,
        lax.conv_general_dilated(volume, cube, (1, 1, 1), "SAME", dimension_numbers=in3),
        lax.conv_general_dilated_patches(picture, (3, 3), (2, 2), "VALID", dimension_numbers=numbers),
        jax.grad(
            lambda k: (lax.conv_general_dilated(picture, k, (2, 2), "SAME", dimension_numbers=numbers) ** 2).sum()
        )(kernel),
        lax.reduce_window(picture, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        jax.grad(lambda v: lax.reduce_window(v, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum())(picture),
        jax.image.resize(picture, (2, 11, 31, 3), "bicubic"),
        jax.image.scale_and_translate(picture, (2, 8, 8, 3), (1, 2), jnp.ones(2) / 3, jnp.zeros(2), "linear"),
        jsp.ndimage.map_coordinates(picture[0, :, :, 0], [jnp.array([1.5, 3.2]), jnp.array([2.0, 9.9])], order=1),
    )


def sparse_matrices() -> Any:
    """Runs BCOO and BCSR, `sparsify`, and the gradient of a sparse regression."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((30, 20)) < 0.2, rng.standard_normal((30, 20)), 0).astype(np.float32)
    m = sparse.BCOO.fromdense(dense)
    v = jnp.arange(20.0) / 20
    y = jnp.asarray(dense @ np.linspace(-1, 1, 20, dtype=np.float32))

    @sparse.sparsify
    def loss(w: Array, m: Any) -> Array:
        return jnp.mean((m @ w - y) ** 2)

    @jax.jit
    def fit(w: Array) -> Array:
        return lax.fori_loop(0, 50, lambda _, w: w - 0.5 * jax.grad(loss)(w, m), w)

    return (
        m @ v,
        jax.jit(lambda a, b: a @ b)(m.T, jnp.ones((30, 4))),
        sparse.BCSR.from_bcoo(m) @ v,
        (m * 2 + m).sum_duplicates(nse=m.nse).todense() if hasattr(m, "sum_duplicates") else m.todense(),
        sparse.sparsify(lambda a: a.sum(0))(m).todense(),
        sparse.bcoo_dot_general(m, m, dimension_numbers=(((1,), (1,)), ((), ()))).todense(),
        fit(jnp.zeros(20)),
        jax.vmap(lambda s: (m @ (s * v)).sum())(jnp.arange(3.0)),
        sparse.grad(lambda a: (a @ v).sum())(m).todense(),
    )


def orbits() -> Any:
    """Runs odeint over adaptive steps, and its adjoint."""

    def pull(state: Array, t: Array, strength: Array) -> Array:
        place, speed = state[:2], state[2:]
        return jnp.concatenate([speed, -strength * place / (place @ place) ** 1.5])

    start = jnp.array([1.0, 0.0, 0.0, 0.9])
    times = jnp.linspace(0.0, 3.0, 13)
    solve = jax.jit(lambda s: odeint(pull, start, times, s, rtol=1e-6, atol=1e-6))
    return solve(1.0), jax.jit(jax.grad(lambda s: odeint(pull, start, times, s, rtol=1e-6, atol=1e-6)[-1, 0]))(1.0)


def minimization() -> Any:
    def bowl(x: Array) -> Array:
        return jnp.sum((x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2 + jnp.cos(x[1:]))

    found = jax.jit(lambda x: minimize(bowl, x, method="BFGS"))(jnp.array([1.3, 0.7, 0.8, 1.9]))
    return found.x, found.success


def gaussian_process() -> Any:
    """Regression: the marginal likelihood's gradient trains length, amplitude and noise; then predictions."""
    x = jax.random.uniform(jax.random.key(0), (40, 1)) * 10
    y = jnp.sin(x[:, 0]) + 0.1 * jax.random.normal(jax.random.key(1), (40,))

    def kernel(p: dict[str, Array], a: Array, b: Array) -> Array:
        pairs = jax.vmap(lambda u: jax.vmap(lambda v: jnp.sum((u - v) ** 2))(b))(a)
        return jax.nn.softplus(p["amplitude"]) * jnp.exp(-pairs / (2 * jax.nn.softplus(p["length"]) ** 2))

    def negative_log_likelihood(p: dict[str, Array]) -> Array:
        k = kernel(p, x, x) + (jax.nn.softplus(p["noise"]) ** 2 + 1e-4) * jnp.eye(40)
        factor = jnp.linalg.cholesky(k)
        alpha = jsp.linalg.cho_solve((factor, True), y)
        return 0.5 * y @ alpha + jnp.log(jnp.diag(factor)).sum()

    @jax.jit
    def step(p: dict[str, Array]) -> tuple[dict[str, Array], Array]:
        value, grad = jax.value_and_grad(negative_log_likelihood)(p)
        return jax.tree.map(lambda a, g: a - 0.002 * g, p, grad), value

    p = {"amplitude": jnp.array(0.5), "length": jnp.array(0.3), "noise": jnp.array(-1.0)}
    values = []
    for _ in range(20):
        p, value = step(p)
        values.append(value)
    new = jnp.linspace(0, 10, 15)[:, None]
    k = kernel(p, x, x) + (jax.nn.softplus(p["noise"]) ** 2 + 1e-4) * jnp.eye(40)
    mean = kernel(p, new, x) @ jnp.linalg.solve(k, y)
    return p, jnp.stack(values), mean


def special_functions() -> Any:
    x = jnp.linspace(0.1, 4.0, 40)
    s = jsp.special
    return (
        [f(x) for f in (s.gammaln, s.digamma, s.erf, s.erfc, s.i0, s.i1e, s.expi, s.exp1, s.gamma, s.i0e)],
        [s.betainc(2.0, x, 0.3), s.gammainc(x, 2.0), s.gammaincc(2.0, x), s.zeta(x + 1, 2.0), s.polygamma(1, x)],
        [s.erfinv(x / 5), s.ndtri(x / 5), s.logit(x / 5), s.xlogy(x, x), s.entr(x), s.logsumexp(x), s.log_ndtr(-x)],
        jax.vmap(jax.grad(s.gammaln))(x),
        jax.vmap(jax.grad(lambda v: s.gammainc(2.0, v)))(x),
        s.sph_harm_y(jnp.array([1]), jnp.array([2]), jnp.array([0.4]), jnp.array([0.3]), n_max=2),
    )


def statistics() -> Any:
    x = jax.random.normal(jax.random.key(0), (200,))
    st = jsp.stats
    return (
        [st.norm.logpdf(x), st.norm.cdf(x), st.norm.ppf(jax.nn.sigmoid(x)), st.t.logpdf(x, 3.0)],
        [st.gamma.logpdf(jnp.abs(x), 2.0), st.beta.logpdf(jax.nn.sigmoid(x), 2.0, 3.0), st.poisson.logpmf(3, 2.5)],
        st.multivariate_normal.logpdf(x.reshape(100, 2), jnp.zeros(2), jnp.array([[2.0, 0.3], [0.3, 1.0]])),
        st.gaussian_kde(x)(jnp.linspace(-2, 2, 9)),
        [jnp.median(x), jnp.quantile(x, jnp.array([0.1, 0.5])), jnp.std(x, ddof=1), jnp.cov(x.reshape(2, -1))],
        [jnp.histogram(x, 12), jnp.digitize(x, jnp.linspace(-2, 2, 7)), jnp.interp(0.3, x.sort(), jnp.arange(200.0))],
        [jnp.corrcoef(x.reshape(4, -1)), jnp.cumsum(x), jnp.cumprod(1 + x / 100), lax.cumlogsumexp(x)],
        [jnp.argsort(x), jnp.lexsort((x, jnp.round(x))), lax.top_k(x, 5), jnp.partition(x, 9)[:9].max()],
        st.rankdata(x),
        st.mode(jnp.round(x)),
        jsp.interpolate.RegularGridInterpolator((jnp.arange(4.0), jnp.arange(5.0)), jnp.arange(20.0).reshape(4, 5))(
            jnp.array([[0.5, 1.25], [2.9, 3.1]])
        ),
        jsp.integrate.trapezoid(x),
        jsp.cluster.vq.vq(x.reshape(100, 2), jnp.array([[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]])),
        jnp.polyfit(jnp.linspace(-1, 1, 200), x, 3),
        jnp.apply_along_axis(jnp.sort, 0, x.reshape(20, 10)),
    )
