"""Passes for frontend constructs that are not tensor ops.

Helpers: `call_graph` decides which calls `inline` inlines, `named_region` and `replacement` resolve the function and
the op that a custom call names, `sparse_calls` has a rule of `known_calls`. `process_groups` and `mesh_axes` compute
the processes that `process_grid` names, and `ragged_rows` has one of its rules. `constant_arguments` binds arguments
that callers give as constants, and `first_platform` the index of the platform by it."""
