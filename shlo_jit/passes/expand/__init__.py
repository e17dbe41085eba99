"""Compound ops rewritten as core ops. Helpers: the rules of `expand`, one family per file: `bitcast`, `chlo`,
`contract`, `data`, `dynamic`, `norm`, `random`, `rng`, `shapes`."""
