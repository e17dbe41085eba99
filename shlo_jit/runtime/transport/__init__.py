"""Transports: how the processes of a grid run and communicate.

    processes   workers of this process, which share memory with it and each other
    threads     threads of this process
    mpi         the processes that mpiexec has started, of which this is one

All of them run ranks (`rank.py`): one program of the grid, loaded, with the state it needs to communicate. The first
two use a board (`shlo_jit/kernels/collective/board.py`) in memory that all processes share.
"""
