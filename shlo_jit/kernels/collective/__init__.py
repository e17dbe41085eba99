"""Data exchange between the processes of a grid, in LLVM text: no run-time library, and no Python between them.

`board.py` is the layout of the memory that all ranks share, and of each rank's own records; `waiting.py` waits for a
word of the shared memory; `messages.py` posts, meets and leaves; `grid_calls.py` begins and ends calls of programs;
`routine.py` combines them into one object. A rank is a process, or a thread, that runs one program of the grid.
"""
