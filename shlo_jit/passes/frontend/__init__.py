"""What frontends write that is no plain op. Helpers: `call_graph` decides which calls `inline` writes out,
`named_region` and `replacement` say what a custom call names and stands for, `sparse_calls` has a rule of
`known_calls`; `process_groups` and `mesh_axes` say which processes `process_grid` names, `ragged_rows` has one of its
rules."""
