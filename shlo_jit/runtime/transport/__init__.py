"""How the processes of a grid run and reach each other.

    processes   workers of this process, which share memory with it and each other
    threads     threads of this process
    mpi         the processes that mpiexec has started, of which this is one

All of them run ranks (`rank.py`): one program of the grid, loaded, with what it needs to meet the others. The first two
meet on a board (`shlo_jit/kernels/collective/board.py`) in memory that all see.
"""
