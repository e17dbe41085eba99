"""Ops that communicate with other processes."""

from __future__ import annotations

from cases_reduce import body
from table import call, rules

GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
GLOBAL = ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids"
ADD = body()


def group_rules(unique: str, inside: str, complete: bool = True, uneven: bool = False) -> tuple[tuple[str, ...], ...]:
    return (
        (unique, "[[0, 1]]", "[[1, 1]]"),
        (inside, "[[0, 1]]", "[[0, 2]]" if complete else "[[0, -2]]"),
        *(() if uneven else ((inside, "[[0, 1]]", "[[-1, 0]]"),)),
    )


NO_GROUPS = ("groups", "dense<[[0, 1]]> : tensor<1x2xi64>", "dense<> : tensor<0x0xi64>")


rules(
    "stablehlo.all_gather",
    call(
        "stablehlo.all_gather", 1, f"all_gather_dim = 1 : i64, {GROUPS}{GLOBAL}", "(tensor<2x3xf32>) -> tensor<2x6xf32>"
    ),
    *group_rules("C2", "C4"),
    NO_GROUPS,
    ("C1", "dim = 1", "dim = 2"),
    ("C1", "dim = 1", "dim = -1"),
    ("C5", "handle = 1", "handle = 0"),
    ("C6", "-> tensor<2x6x", "-> tensor<2x5x"),
    ("C6", "-> tensor<2x6x", "-> tensor<3x6x"),
    ("C6", "-> tensor<2x6x", "-> tensor<12x"),
    ("C6", "-> tensor<2x6xf32>", "-> tensor<2x6xf64>"),
)
rules(
    "stablehlo.all_reduce",
    call("stablehlo.all_reduce", 1, f"{GROUPS}{GLOBAL}", "(tensor<2xf32>) -> tensor<2xf32>", ADD),
    *group_rules("C1", "C3", uneven=True),
    NO_GROUPS,
    ("C4", "handle = 1", "handle = 0"),
    ("C5", ", %y: tensor<f32>", ""),
    ("C5", "(tensor<2xf32>)", "(tensor<2xf64>)"),
    ("C6", "-> tensor<2x", "-> tensor<3x"),
    ("C7", "-> tensor<2xf32>", "-> tensor<2xf64>"),
)
rules(
    "stablehlo.all_to_all",
    call("stablehlo.all_to_all", 1, "split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, "
         f"{GROUPS}", "(tensor<3x4xf32>) -> tensor<6x2xf32>"),
    *group_rules("C5", "C7"),
    ("C1", "split_dimension = 1", "split_dimension = 2"),
    ("C1", "split_dimension = 1", "split_dimension = -1"),
    ("C2", "(tensor<3x4x", "(tensor<3x5x"),
    ("C3", "concat_dimension = 0", "concat_dimension = 2"),
    ("C3", "concat_dimension = 0", "concat_dimension = -1"),
    ("C4", "split_count = 2", "split_count = 0"),
    ("C8", "split_count = 2", "split_count = 4"),
    ("C9", "-> tensor<6x2x", "-> tensor<6x3x"),
)  # fmt: skip
rules(
    "stablehlo.reduce_scatter",
    call("stablehlo.reduce_scatter", 1, f"scatter_dimension = 1 : i64, {GROUPS}{GLOBAL}",
         "(tensor<2x4xf32>) -> tensor<2x2xf32>", ADD),
    *group_rules("C3", "C5"),
    NO_GROUPS,
    ("C2", "dimension = 1", "dimension = 2"),
    ("C2", "dimension = 1", "dimension = -1"),
    ("C6", "handle = 1", "handle = 0"),
    ("C7", ", %y: tensor<f32>", ""),
    ("C8", "-> tensor<2x2x", "-> tensor<2x3x"),
    ("C8", "-> tensor<2x2x", "-> tensor<3x2x"),
    ("C8", "-> tensor<2x2x", "-> tensor<4x"),
    ("C9", "-> tensor<2x2xf32>", "-> tensor<2x2xf64>"),
)  # fmt: skip
for _name, _root in (("collective_broadcast", "C4"), ("collective_reduce", "root")):
    _op = f"stablehlo.{_name}"
    _body = ADD if _name.endswith("reduce") else ""
    rules(
        _op,
        {
            "": call(_op, 1, GROUPS, "(tensor<2xf32>) -> tensor<2xf32>", _body),
            "root": call(_op, 2, f"{GROUPS}, has_dynamic_root = true", "(tensor<2xf32>, tensor<1xi32>) -> tensor<2xf32>",
                         _body),
        },
        *group_rules("C1", "C2", complete=False),
        ("C3", "-> tensor<2x", "-> tensor<3x"),
        (f"{_root} root", "(%a, %b)", "(%a)", "(tensor<2xf32>, tensor<1xi32>)", "(tensor<2xf32>)"),
        (f"{_root} root", "tensor<1xi32>", "tensor<1xi64>"),
        (f"{_root} root", "tensor<1xi32>", "tensor<2xi32>"),
    )  # fmt: skip
rules(
    "stablehlo.collective_reduce",
    call("stablehlo.collective_reduce", 1, f"{GROUPS}{GLOBAL}", "(tensor<2xf32>) -> tensor<2xf32>", ADD),
    NO_GROUPS,
    ("C4", "handle = 1", "handle = 0"),
    ("C5", ", %y: tensor<f32>", ""),
    ("C6", "-> tensor<2xf32>", "-> tensor<2xf64>"),
)
rules(
    "stablehlo.collective_permute",
    call("stablehlo.collective_permute", 1, "source_target_pairs = dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>",
         "(tensor<2xf32>) -> tensor<2xf32>"),
    ("C1", "dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>", "dense<[[0, 1, 2]]> : tensor<1x3xi64>"),
    ("C1", "dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>", "dense<[0, 1]> : tensor<2xi64>"),
    ("C2", "[1, 2]]", "[0, 2]]"),
    ("C3", "[1, 2]]", "[1, 1]]"),
    ("C4", "[1, 2]]", "[1, -2]]"),
    ("C5", "-> tensor<2x", "-> tensor<3x"),
)  # fmt: skip
rules(
    "stablehlo.cross-replica-sum",
    call("stablehlo.cross-replica-sum", 1, GROUPS, "(tensor<2xf32>) -> tensor<2xf32>"),
    ("C1", "-> tensor<2x", "-> tensor<3x"),
)

# host and channels

INFEED = call("stablehlo.infeed", 1, "layout = [[0]]", "(!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)")
rules(
    "stablehlo.infeed",
    {"": INFEED, "token": INFEED.replace("layout = [[0]]", "layout = []").replace("(tensor<2xf32>, !stablehlo.token)",
                                                                                  "(!stablehlo.token)")},
    ("C1 token", "-> (!stablehlo.token)", "-> ()"),
    ("C2", "(tensor<2xf32>, ", "(!stablehlo.token, "),
    ("C3", "-> (tensor<2xf32>, !stablehlo.token)", "-> (tensor<2xf32>, tensor<2xf32>)"),
    ("layout", "[[0]]", "[[0], [0]]"),
    ("layout", "[[0]]", "[0]"),
    ("layout", "[[0]]", "[[true]]"),
)  # fmt: skip
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = {}>, is_host_transfer = {}"
rules(
    "stablehlo.send",
    {
        "": call("stablehlo.send", 2, CHANNEL.format(2, "true"), "(tensor<2xf32>, !stablehlo.token) -> !stablehlo.token"),
        "device": call("stablehlo.send", 2, CHANNEL.format(1, "false"),
                       "(tensor<2xf32>, !stablehlo.token) -> !stablehlo.token"),
    },
    ("C1", "type = 2", "type = 3"),
    ("C1 device", "false", "true"),
)  # fmt: skip
rules(
    "stablehlo.recv",
    call("stablehlo.recv", 1, CHANNEL.format(3, "true"), "(!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)"),
    ("C1", "type = 3", "type = 2"),
    ("C1", "true", "false"),
    ("C2", "-> (tensor<2xf32>, !stablehlo.token)", "-> ()"),
    ("C3", "(tensor<2xf32>, ", "(!stablehlo.token, "),
    ("C4", "-> (tensor<2xf32>, !stablehlo.token)", "-> (tensor<2xf32>, tensor<2xf32>)"),
)
