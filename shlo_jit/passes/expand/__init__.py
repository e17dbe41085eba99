"""Compound ops as core ops. Helpers: the rules of `expand`, a family a file: `bitcast`, `chlo`, `contract`, `data`,
`dynamic`, `norm`, `random`, `rng`, `shapes`."""
