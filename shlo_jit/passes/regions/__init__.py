"""Loops and region bodies that can be rewritten without regions.

Helpers of `elementwise_bodies`: `batched_ops`, its rules; `batched_region`, which runs a region on a batch;
`per_element`, which runs it for each element of a batch; `outline`, which makes it a function."""
