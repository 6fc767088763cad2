"""Where a training script touches torch: each seam watches, and runs the step as a Setup says."""
