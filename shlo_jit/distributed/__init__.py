"""Programs for grids of processes, before they are compiled and while that is arranged."""
