"""Jobs on the threads of an OpenMP team that the host program has.

After a parallel loop of its own, an OpenMP library keeps its threads spinning for milliseconds, on the cores that our
workers would use: a program that calls both in turn would wait for late workers. Its threads run our jobs instead.

    ptr @shlo_team

is null, or a table of the addresses of `omp_get_max_threads`, `GOMP_parallel` and `omp_get_thread_num`. A job is one
parallel region, in which the caller is thread 0, and others take places as the pool's workers do. Members without a
place do nothing. If there are fewer members than places, as inside another parallel region, the caller runs the tasks
of the rest. A job for more threads than the caller's team has uses the pool's own workers.
"""

from __future__ import annotations

from shlo_jit.kernels.atomics import atomic, atomic_store
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64
from shlo_jit.kernels.threads.state import TEAM_PLACES

TEAM = V("ptr", "@shlo_team")


def write_team(module: ModuleText) -> None:
    """Emits void @shlo_pool_member(ptr state), what each thread of the team does."""
    b = module.function("shlo_pool_member", [("ptr", "state")], attributes="nounwind")
    (state,) = b.params
    number = b.call_pointer("i32", b.load("ptr", b.offset(b.load("ptr", TEAM), 16)), [])
    with b.if_(b.icmp("eq", number, i32(0))):
        b.call("void", "shlo_pool_run", [state, i64(0)], declare=False)
        b.ret_early()
    place = atomic(b, "sub", b.offset(state, TEAM_PLACES), i32(1), "acq_rel")
    with b.if_(b.icmp("sgt", place, i32(0))):
        b.call("void", "shlo_pool_run", [state, b.cast("sext", place, "i64")], declare=False)
    b.ret()


def run_with_team(b: Builder, state: V, helpers: V) -> V:
    """Runs a job that is stored in the state, if there is a team of enough threads. Returns an i1: whether it did."""
    team = b.load("ptr", TEAM)

    def run() -> list[V]:
        size = b.call_pointer("i32", b.load("ptr", team), [])
        enough = b.icmp("sgt", size, helpers)
        with b.if_(enough):
            places = b.offset(state, TEAM_PLACES)
            atomic_store(b, helpers, places, "release")
            region = [V("ptr", "@shlo_pool_member"), state, size, i32(0)]
            b.call_pointer("void", b.load("ptr", b.offset(team, 8)), region)
            b.call("i32", "shlo_pool_rest", [state, places], declare=False)
        return [enough]

    return b.if_else(b.icmp("ne", team, V("ptr", "null")), run, lambda: [V("i1", "false")])[0]
