"""The benchmark: what Towline costs beside the bare engine, both in the same run, as ratios and differences."""
