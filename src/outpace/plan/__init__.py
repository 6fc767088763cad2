"""What fits a deadline, and what it costs: budgets, scaling laws, accelerators."""
