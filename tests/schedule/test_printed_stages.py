"""The printed stages of a planned program: the same names and labels at every stage, one line per step, in columns."""

from __future__ import annotations

import re

import pytest
from decisions import AVX512, context_of, core_of, main, plan_of, schedules, tensor

from shlo_jit import tuning
from shlo_jit.fuse.fuse import fuse
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, all_steps, labels_of
from shlo_jit.fuse.show import show_plan
from shlo_jit.fuse.value_names import Names
from shlo_jit.memory.planner import plan_memory
from shlo_jit.memory.show import show_memory
from shlo_jit.schedule.schedule import schedule
from shlo_jit.schedule.show import show_schedule
from shlo_jit.schedule.work import is_short, step_work

T = tensor(64, 64)
PROGRAM = main(
    f"%x: {T}, %w: {T}, %n: tensor<i32>", T,
    "%zero = stablehlo.constant dense<0> : tensor<i32>",
    f"%r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, {T} cond {{",
    "  %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>",
    "  stablehlo.return %p : tensor<i1>",
    "} do {",
    "  %one = stablehlo.constant dense<1> : tensor<i32>",
    "  %j = stablehlo.add %i, %one : tensor<i32>",
    f"  %d = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}",
    f"  %s = stablehlo.cholesky %d, lower = true : {T}",
    f"  stablehlo.return %j, %s : tensor<i32>, {T}",
    "}",
    f"%t = stablehlo.tanh %r#1 : {T}",
    f"%y = stablehlo.dot_general %t, %w, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}",
)  # fmt: skip


def printed(text: str) -> tuple[PlanBlock, Names, dict[str, str]]:
    """Returns a plan, its values' names, and the texts of its stages, each with fresh names as `exe.text` has them."""
    core = core_of(text)
    plan = fuse(core)
    found = schedule(plan, context_of(AVX512))
    return (
        plan,
        Names(core),
        {
            "plan": show_plan(plan, Names(core)),
            "schedule": show_schedule(plan, found, AVX512, Names(core)),
            "memory": show_memory(plan, plan_memory(plan, found), Names(core)),
        },
    )


def test_steps_within_control_flow_are_labelled_by_region() -> None:
    plan, _, texts = printed(PROGRAM)
    labels = labels_of(plan)
    assert len(labels) == len(set(labels.values())) == sum(1 for _ in all_steps(plan))
    loop = next(labels[id(s)] for s in plan.steps if isinstance(s, ControlStep))
    assert {f"{loop}.0.0", f"{loop}.1.0", f"{loop}.1.1", f"{loop}.1.2"} <= set(labels.values())
    for stage in ("plan", "schedule"):
        assert all(re.search(rf"(^|\s){re.escape(label)} ", texts[stage], re.M) for label in labels.values())


def test_lifetimes_are_printed_in_steps() -> None:
    """Lifetimes use the plan's names of steps; `end` is the end of the program, where results are copied."""
    plan, _, texts = printed(PROGRAM)
    known = {*labels_of(plan).values(), "end"}
    table = texts["memory"].split("\n\n")[1].splitlines()
    at, holds = table[0].index("steps"), table[0].index("holds")
    lives = [row[at:holds].strip() for row in table[1:] if not row.startswith("after")]
    assert lives and all(set(life.split(" to ")) <= known for life in lives), lives


def test_every_step_has_its_line_in_plan_and_schedule() -> None:
    plan, _, texts = printed(PROGRAM)
    labels = labels_of(plan)
    for step in all_steps(plan):
        head = re.compile(rf"^ *{re.escape(labels[id(step)])} {re.escape(step.title)}\b", re.M)
        assert len(head.findall(texts["plan"])) == 1
        assert len(head.findall(texts["schedule"])) == 1


def test_values_have_one_name_in_all_stages() -> None:
    plan, names, texts = printed(PROGRAM)
    for step in all_steps(plan):
        for value in step.writes:
            for stage in ("plan", "schedule"):
                assert re.search(rf"{re.escape(names(value))}\b", texts[stage]), (stage, names(value))
    known = names.used
    for stage, text in texts.items():
        shown = set(re.findall(r"%[\w.#]+", text))
        assert shown, stage
        # memory also has values that no step uses: arguments of regions that are not read there
        assert shown <= known or stage == "memory", stage
        assert len(shown & known) > 3, stage


def test_columns_line_up() -> None:
    _, _, texts = printed(PROGRAM)
    for line in texts["plan"].splitlines()[1:]:
        if line.lstrip().startswith(("reads", "writes")):
            assert re.match(r" {6}((    )*)(reads   |writes  )\S", line), line
    notes = [line for line in texts["schedule"].splitlines()[1:] if not re.match(r" *[\d.]+ \w", line)]
    assert notes
    for note in notes:
        assert re.match(r" {6}((    )*)(  )?\w[\w ]{14} \S", note), note
    table = texts["memory"].split("\n\n")[1].splitlines()
    holds = table[0].index("holds")
    assert len(table) > 3
    rows = [row for row in table if len(row) > holds and not row.startswith("after")]
    assert all(row[holds - 1] == " " and row[holds] != " " for row in rows), table


def test_the_machine_comes_first() -> None:
    _, _, texts = printed(PROGRAM)
    assert texts["schedule"].startswith("for a-cpu: 32 registers of 512 bits, masks\n")


# ---------------------------------------------------------------------- short programs
def test_short_programs_are_those_with_little_work() -> None:
    """A loop of one op costs a load and an addition per element, plus the step itself."""
    n = (tuning.SHORT_WORK - tuning.STEP_WORK) // 2
    texts = [main(f"%x: {tensor(k)}", tensor(k), f"%y = stablehlo.negate %x : {tensor(k)}") for k in (n, n + 1)]
    short, long = map(plan_of, texts)
    assert step_work(short.steps[0]) <= tuning.SHORT_WORK < step_work(long.steps[0])
    assert is_short(short)
    assert not is_short(long)


def test_loops_are_never_short() -> None:
    assert not is_short(plan_of(PROGRAM))


@pytest.mark.parametrize(("side", "short"), [(25, True), (26, False)])
def test_products_are_as_long_as_their_multiply_adds(side: int, short: bool) -> None:
    t = tensor(side, side)
    plan = plan_of(main(f"%a: {t}, %b: {t}", t,
                        f"%y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}"))  # fmt: skip
    assert is_short(plan) == short == (side**3 + tuning.STEP_WORK <= tuning.SHORT_WORK)


# ---------------------------------------------------------------------- epilogues, in the plan
def test_a_plan_says_why_no_loop_runs_on_a_product_s_tiles() -> None:
    plan, _, texts = printed(PROGRAM)
    (last,) = [s for s in plan.steps if isinstance(s, OpStep)]
    assert last.refused["epilogue"].code == "product-returned"
    assert f"no epilogue   ({last.refused['epilogue']})" in texts["plan"]
    assert any(isinstance(s, NestStep) for s in plan.steps)
    assert schedules(PROGRAM)
