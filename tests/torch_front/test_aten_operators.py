"""Operators compared with PyTorch: many in a graph, on awkward values, shapes and element types.

The samples of PyTorch's own tests are compared by `python -m benchmarks.torch_op_db`.
"""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F
from agreement import agree

from shlo_jit.torch.dynamo import backend

INF, NAN = math.inf, math.nan


def test_functions_of_special_floats():
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e30, INF, -INF, NAN])
    y = torch.tensor([1.0, -1.0, 0.0, 3.0, -0.5, 2.0, -3.5, 1e-30, 2.0, INF, 1.0])
    agree(
        [
            lambda x, y: x / y,
            lambda x, y: x // y,
            lambda x, y: x % y,
            torch.fmod,
            lambda x, y: torch.div(x, y, rounding_mode="trunc"),
            lambda x, y: x**2 + x**-1,
            torch.maximum,
            torch.fmin,
            lambda x, y: torch.sign(x),
            lambda x, y: torch.trunc(x),
            lambda x, y: torch.round(x),
            lambda x, y: torch.round(x / 7, decimals=2),
            lambda x, y: torch.nan_to_num(x),
            lambda x, y: torch.isposinf(x) | torch.isnan(y),
            torch.copysign,
            torch.hypot,
            torch.logaddexp,
            torch.xlogy,
            lambda x, y: torch.clamp(x, -1, 2),
            lambda x, y: torch.lerp(x.clamp(-2, 2), y.clamp(-2, 2), 0.75),
            lambda x, y: torch.where(x > y, x, 2.0),
            lambda x, y: F.gelu(x.clamp(-9, 9), approximate="tanh"),
            lambda x, y: F.elu(x),
            lambda x, y: torch.angle(x),
        ],
        x,
        y,
    )


def test_integers_wrap_divide_and_shift():
    x = torch.tensor([7, -7, 2**62, -(2**63), 5, 0, -1])
    y = torch.tensor([2, 2, 3, 1, -3, 4, 2])
    agree(
        [
            lambda x, y: x // y,
            lambda x, y: x % y,
            lambda x, y: torch.div(x, y, rounding_mode="trunc"),
            torch.fmod,
            lambda x, y: x / y,
            lambda x, y: x * x + 2**62,
            lambda x, y: x**3,
            lambda x, y: torch.pow(x, y.abs()),
            lambda x, y: x >> y.abs(),
            lambda x, y: torch.gcd(x[:3], y[:3]),
            lambda x, y: x & y | ~x ^ y,
            lambda x, y: x.to(torch.int8),
            lambda x, y: x.to(torch.uint8) + 200,
            lambda x, y: x.bool() + y,
            lambda x, y: y.float().to(torch.int32) * y.int(),
            lambda x, y: y.to(torch.int8) > 300,
        ],
        x,
        y,
    )


def test_promotion_of_element_types():
    x, scalar = torch.arange(4, dtype=torch.int32), torch.tensor(2.5, dtype=torch.float64)
    half, byte = torch.ones(4, dtype=torch.bfloat16), torch.ones(4, dtype=torch.uint8)
    agree(
        [
            lambda x, s, h, u: x + s,
            lambda x, s, h, u: h * s,
            lambda x, s, h, u: h + x,
            lambda x, s, h, u: u - x,
            lambda x, s, h, u: u + x.to(torch.int8),
            lambda x, s, h, u: x * 1.5,
            lambda x, s, h, u: h * 1.7 + 0.1,
            lambda x, s, h, u: (x > 1) + 1,
            lambda x, s, h, u: h.float() @ torch.ones(4) + s,
            lambda x, s, h, u: x + 1j,
        ],
        x,
        scalar,
        half,
        byte,
    )


def test_views_and_parts():
    x = torch.arange(60.0).reshape(3, 4, 5)
    agree(
        [
            lambda x: x[:, 1::2, -2:],
            lambda x: x[..., None, 0].squeeze(-1),
            lambda x: x.flip(0, 2).roll((1, -2), (0, 1)).roll(3),
            lambda x: x.unfold(1, 2, 1),
            lambda x: x.diagonal(1, 1, 2),
            lambda x: torch.diag_embed(x[0], -1),
            lambda x: torch.diagonal_scatter(x, torch.zeros(3, 3), -1, 1, 2),
            lambda x: x.slice_scatter(torch.ones(3, 2, 5), 1, 0, 4, 2),
            lambda x: x.select_scatter(torch.ones(3, 5), 1, 2),
            lambda x: x.repeat(2, 1, 2)[:, :, 3:],
            lambda x: F.pad(x, (1, -2, 0, 3), value=7.0),
            lambda x: F.pad(x, (2, 1), mode="reflect"),
            lambda x: x.transpose(0, 2).reshape(4, 15),
            lambda x: torch.as_strided(x, (2, 3), (7, 2), 5),
            lambda x: torch.stack(x.unbind(1), -1),
            lambda x: torch.cat([torch.empty(0), x[0, 0], torch.arange(2)]),
            lambda x: torch.tril(x, -1) + torch.triu(x, 2),
            lambda x: x.view(torch.int32)[..., 0],
            lambda x: torch.movedim(x, 0, -1).contiguous(),
        ],
        x,
    )


def test_reductions_with_ties_nans_and_nothing():
    x = torch.tensor([[3.0, NAN, 3.0, -1.0], [2.0, 5.0, 5.0, 0.0]])
    agree(
        [
            lambda x: x.max(1),
            lambda x: x.min(0, keepdim=True),
            lambda x: x.argmax(),
            lambda x: x[1].argmin(0),
            lambda x: x.nansum(1),
            lambda x: x[1].var(unbiased=True),
            lambda x: torch.var_mean(x, 1, correction=0),
            lambda x: x[:, :0].sum(1),
            lambda x: x[:, :0].prod(1),
            lambda x: (x > 2).all(1),
            lambda x: (x > 2).sum(),
            lambda x: x[1].cumsum(0),
            lambda x: x.cummax(1),
            lambda x: x.cummin(1),
            lambda x: x[1].logcumsumexp(0),
            lambda x: torch.sort(x, dim=1, stable=True),
            lambda x: x[1, :2].topk(1),
            lambda x: x.median(1)[0],
            lambda x: x.nanmedian(1)[0],
            lambda x: torch.searchsorted(torch.tensor([0.0, 2.0, 4.0]), x, right=True),
            lambda x: torch.histc(x[1], 4, 0, 5),
            lambda x: torch.linalg.vector_norm(x[1], 3),
        ],
        x,
    )


def test_indices_and_scatters():
    x = torch.arange(12.0).reshape(3, 4)
    i, j = torch.tensor([2, 0, -1]), torch.tensor([[1, 3], [0, 0], [2, -4]])
    agree(
        [
            lambda x, i, j: x[i],
            lambda x, i, j: x[:, j],
            lambda x, i, j: x[i, i[:, None]],
            lambda x, i, j: x.gather(1, j % 4),
            lambda x, i, j: x.scatter(1, j % 4, 9.0),
            lambda x, i, j: x.scatter_add(1, j % 4, torch.ones(3, 2)),
            lambda x, i, j: x.scatter_reduce(1, j % 4, torch.full((3, 2), 2.0), "prod", include_self=False),
            lambda x, i, j: x.scatter_reduce(1, j % 4, torch.full((3, 2), 2.0), "mean"),
            lambda x, i, j: x.index_add(0, i % 3, torch.ones(3, 4), alpha=2),
            lambda x, i, j: x.index_put((i % 3,), torch.tensor(5.0), accumulate=True),
            lambda x, i, j: x.index_put((x > 4,), torch.tensor(0.0)),
            lambda x, i, j: x.index_put((x[:, 0] > 3,), torch.arange(8.0).reshape(2, 4), accumulate=True),
            lambda x, i, j: x[0].masked_scatter(x > 5, torch.arange(20.0)),
            lambda x, i, j: F.embedding(j % 3, x * 1, max_norm=2.0),
            lambda x, i, j: x.masked_scatter(x > 5, torch.arange(20.0)),
            lambda x, i, j: torch.take(x, j),
            lambda x, i, j: F.embedding(j % 3, x),
            lambda x, i, j: F.one_hot(j % 4, 5),
        ],
        x,
        i,
        j,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products(dtype):
    x, y, z = (torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.randn(5))
    tolerance = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 5e-2}
    agree(
        [
            lambda x, y, z: x @ y,
            lambda x, y, z: torch.baddbmm(z, x, y, beta=0.5, alpha=2),
            lambda x, y, z: y @ z,
            lambda x, y, z: torch.addmm(z, x[0], y[1]),
            lambda x, y, z: torch.einsum("bij,bjk->bik", x, y),
            lambda x, y, z: F.linear(y, torch.ones(3, 5, dtype=y.dtype), z[:3]),
            lambda x, y, z: torch.outer(z, z).mv(z),
        ],
        *(t.to(dtype) for t in (x, y, z)),
        **tolerance,
    )


def test_convolutions_and_pools():
    x, w, v = torch.randn(2, 4, 9, 8), torch.randn(6, 2, 3, 2), torch.randn(4, 3, 3, 3)
    agree(
        [
            lambda x, w, v: F.conv2d(x, w, torch.ones(6), stride=2, padding=(1, 2), dilation=(2, 1), groups=2),
            lambda x, w, v: F.conv_transpose2d(x, v, None, stride=2, padding=1, output_padding=1),
            lambda x, w, v: F.conv_transpose2d(x, w[:4], None, padding=3, groups=2),
            lambda x, w, v: F.conv1d(x[:, :, 0], w[:, :, :, 0], groups=2),
            lambda x, w, v: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
            lambda x, w, v: F.max_pool2d(x, 2, return_indices=True)[1],
            lambda x, w, v: F.max_pool2d(x, (3, 2), 1, dilation=2),
            lambda x, w, v: F.max_pool2d(torch.where(x > 1, torch.nan, torch.where(x < 0, -torch.inf, x)), 2),
            lambda x, w, v: F.max_pool3d((x * 9).to(torch.int32).to(torch.float64)[:, None], 2, padding=1),
            lambda x, w, v: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            lambda x, w, v: F.adaptive_avg_pool2d(x, (4, 3)),
            lambda x, w, v: F.interpolate(x, (5, 13), mode="bilinear"),
            lambda x, w, v: F.interpolate(x, scale_factor=2, mode="nearest"),
            lambda x, w, v: F.unfold(x, 2, padding=1),
            lambda x, w, v: F.fold(x.reshape(2, 4, 72)[:, :, :56], (9, 8), (2, 2)),
            lambda x, w, v: F.pixel_shuffle(x, 2),
            lambda x, w, v: F.group_norm(x, 2) + F.layer_norm(x, (8,)),
            lambda x, w, v: F.batch_norm(x, x[0, :, 0, 0], x[0, :, 1, 1] ** 2, x[1, :, 0, 0], x[1, :, 0, 1]),
            lambda x, w, v: F.batch_norm(x, x[0, :, 0, 0], x[0, :, 1, 1] ** 2, eps=0.1),
        ],
        x,
        w,
        v,
        rtol=1e-5,
        atol=1e-5,
    )


def gradients(f, *tensors):
    """The gradients of the sum of a function's squares."""
    given = [t.detach().clone().requires_grad_() for t in tensors]
    return torch.autograd.grad(f(*given).square().sum(), given)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=2),
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        lambda x, w: F.conv1d(x[:, :, 0], w[:, :, 0], padding=2, dilation=2, groups=2),
        lambda x, w: F.conv3d(x[:, :, :6].reshape(2, 4, 2, 3, 8), w[:, :, None], stride=(1, 2, 1), padding=1, groups=2),
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, groups=2, output_padding=1),
        lambda x, w: F.max_pool2d(x, 3, 2, 1) * w.sum(),
        lambda x, w: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True) * w.sum(),
        lambda x, w: F.scaled_dot_product_attention(x, x, x, is_causal=True) * w.mean(),
        lambda x, w: F.adaptive_avg_pool2d(x, 3) * w.sum(),
    ],
    ids=["convolution", "transposed", "one", "three", "groups", "max_pool", "avg_pool", "attention", "adaptive"],
)
def test_gradients(f):
    x, w = torch.randn(2, 4, 8, 8), torch.randn(4, 2, 3, 3)
    compiled = torch.compile(f, backend=backend, options={"fallback": False})
    for found, wanted in zip(gradients(compiled, x, w), gradients(f, x, w), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


def test_gradients_of_parameters_alone():
    x, layer = torch.randn(2, 2, 6, 6), torch.nn.Conv2d(2, 3, 3)
    compiled = torch.compile(lambda x: layer(x).square().sum(), backend=backend, options={"fallback": False})
    found = torch.autograd.grad(compiled(x), [*layer.parameters()])
    torch.testing.assert_close(found, torch.autograd.grad(layer(x).square().sum(), [*layer.parameters()]))


def test_attention_with_masks_and_shared_heads():
    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    mask = torch.rand(5, 5) > 0.3
    agree(
        [
            lambda q, k, m: F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True),
            lambda q, k, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
            lambda q, k, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m.float() * 2, scale=0.3),
        ],
        q,
        k,
        mask,
    )


def test_complex_numbers_and_transforms():
    x = torch.randn(3, 8)
    agree(
        [
            lambda x: torch.fft.fft(x).abs(),
            lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), norm="ortho"),
            lambda x: torch.view_as_real(torch.complex(x, -x).conj().resolve_conj()),
            lambda x: torch.polar(x.abs(), x).real,
            lambda x: torch.fft.fft2(x).imag,
        ],
        x,
    )


def test_factorizations():
    pytest.importorskip("scipy", reason="LAPACK comes with SciPy")
    x, y = torch.randn(2, 4, 4), torch.randn(2, 4, 3)
    agree(
        [
            torch.linalg.solve,
            lambda x, y: torch.linalg.inv(x),
            lambda x, y: torch.linalg.det(x),
            lambda x, y: torch.linalg.slogdet(x),
            lambda x, y: torch.linalg.lu(y),
            lambda x, y: torch.linalg.qr(y),
            lambda x, y: torch.linalg.eigvalsh(x),
            lambda x, y: torch.linalg.svdvals(y),
            lambda x, y: torch.linalg.cholesky(x @ x.mT + torch.eye(4)),
        ],
        x,
        y,
        rtol=1e-3,
        atol=1e-3,
    )
    agree(
        [
            lambda x, y: torch.linalg.det(x[:, :0, :0]),
            lambda x, y: torch.linalg.solve(x[:, :0, :0], y[:, :0]),
            lambda x, y: torch.linalg.svd(y[:, :0], full_matrices=True),
            lambda x, y: torch.linalg.qr(y[..., :0], mode="complete"),
            lambda x, y: torch.linalg.eigh(x[:0])[0],
        ],
        x,
        y,
    )


def test_places_in_memory_count_from_the_storage():
    base = torch.arange(20.0)
    x = base[2:14].reshape(3, 4)
    agree(
        [
            lambda x: x[1:].as_strided((2, 3), (4, 1)),
            lambda x: torch.as_strided(x, (2, 3), (3, 1), 4),
            lambda x: torch.as_strided_scatter(x, torch.zeros(2, 2), (2, 2), (4, 2), 3),
            lambda x: x.t().as_strided((2, 2), (1, 4)),
        ],
        x,
    )
    for refused in (
        lambda x: torch.as_strided(x, (2,), (1,), 0),
        lambda x: torch.as_strided(x, (3,), (1,), 12),
        lambda x: torch.as_strided_scatter(x[:, :2], torch.zeros(2), (2,), (1,)),
    ):
        with pytest.raises(Exception, match="as_strided.*not supported"):
            agree([refused], x)


def test_functions_of_complex_numbers():
    x = torch.tensor([complex(NAN, 1), complex(INF, -INF), 2 - 1j])
    agree(
        [
            lambda x: torch.nan_to_num(x, nan=2.0, posinf=7.0),
            lambda x: torch.linspace(1 + 1j, 3 - 2j, 4) + x[2],
            lambda x: torch.linspace(0, 1j, 3, dtype=torch.complex128),
        ],
        x,
    )
    with pytest.raises(Exception, match="complex numbers are not supported"):
        agree([lambda x: x.logcumsumexp(0)], x)


def test_truth_of_no_dimensions_and_saturated_bytes():
    x = torch.tensor([[1000.0, -1e30, NAN], [0.0, -INF, 460.0]])
    agree(
        [
            lambda x: torch.any(x, dim=[]),
            lambda x: torch.all(x, dim=[], keepdim=True),
            lambda x: torch.any(x, dim=(0, 1)),
            lambda x: x.to(torch.float8_e4m3fn).float(),
            lambda x: x.bfloat16().to(torch.float8_e4m3fn).float(),
            lambda x: torch.full((2,), 1e4).to(torch.float8_e4m3fn).float(),
        ],
        x,
    )


@pytest.mark.slow
def test_long_rows_are_searched_and_their_greatest_elements_found():
    x = torch.randn(3, 200).round(decimals=1)
    x[0, 5], x[1, 7], x[1, 9] = NAN, -NAN, INF
    rows, index = x.nan_to_num(0.0).sort(-1)[0], torch.randint(0, 200, (150,))
    agree(
        [
            lambda x, rows, i: torch.searchsorted(rows, x),
            lambda x, rows, i: torch.searchsorted(rows, x[:, :70].contiguous(), right=True),
            lambda x, rows, i: torch.bucketize(x, rows[2], out_int32=True),
            lambda x, rows, i: torch.bucketize(0.3, rows[2], right=True),
            lambda x, rows, i: x.topk(5)[0],
            lambda x, rows, i: x.topk(2, 0)[0],
            lambda x, rows, i: x.topk(5, largest=False)[0],
            lambda x, rows, i: torch.arange(-300, 300).flip(0).topk(3),
            lambda x, rows, i: x.bfloat16().topk(7)[0],
            lambda x, rows, i: torch.gather(x, 1, x.topk(3)[1]),
            lambda x, rows, i: x.topk(0),
            lambda x, rows, i: F.embedding_bag(i, rows.t(), torch.arange(0, 150, 2)),
        ],
        x,
        rows,
        index,
    )


def agree_with_gradients(product, x, w, ends):
    """Compares a product of groups that end at `ends`, and the gradients of the sum of its squares."""
    x, w = x.requires_grad_(), w.requires_grad_()

    def results(f):
        found = f(x, w, ends)
        return [found, *torch.autograd.grad(found.float().square().sum(), (x, w))]

    exact = 1e-2 if x.dtype == torch.bfloat16 else 1e-5
    compiled = torch.compile(product, backend=backend, options={"fallback": False})
    for found, wanted in zip(results(compiled), results(product), strict=True):
        torch.testing.assert_close(found, wanted, rtol=exact, atol=exact * float(wanted.detach().abs().max()))


@pytest.mark.parametrize("ends", [[2, 2, 5], [0, 6, 6], [0, 0, 0]])
def test_grouped_products_of_transformers(ends):
    pytest.importorskip("transformers.integrations.moe", reason="its import registers the operator")

    def product(x, w, ends):
        return torch.ops.transformers.grouped_mm_fallback(x, w, ends)

    agree_with_gradients(product, torch.randn(6, 4), torch.randn(3, 4, 5), torch.tensor(ends, dtype=torch.int32))
    agree_with_gradients(product, torch.randn(6, 4), torch.randn(3, 5, 4).transpose(1, 2), torch.tensor(ends))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "shapes",
    [((16, 8), (3, 8, 24)), ((3, 24, 8), (8, 16)), ((24, 16), (16, 8)), ((3, 8, 16), (3, 16, 8))],
    ids=["rows", "columns", "sums", "batch"],
)
def test_grouped_products_and_their_gradients(shapes):
    x, w = (torch.randn(*shape, dtype=torch.bfloat16) for shape in shapes)
    ends = None if x.ndim == w.ndim == 3 else torch.tensor([2, 2, 16], dtype=torch.int32)
    agree_with_gradients(lambda x, w, ends: torch._grouped_mm(x, w, offs=ends), x, w, ends)
