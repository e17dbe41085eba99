"""Programs for grids of processes: their partitioning and compilation."""
