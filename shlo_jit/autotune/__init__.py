"""A search over schedules by measurement: `shlo_jit.tune`."""
