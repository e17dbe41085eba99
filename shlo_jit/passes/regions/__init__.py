"""Loops and bodies that need not be regions. Helpers of `elementwise_bodies`: `batched_ops`, its rules;
`batched_region`, how a region runs on a batch; `one_by_one`, how it runs for one element after the other; `outline`,
how it becomes a function."""
