"""Loops and bodies that need not be regions. Helpers: `batched_ops` and `batched_region`, the rules of
`elementwise_bodies` and how a region runs on a batch."""
