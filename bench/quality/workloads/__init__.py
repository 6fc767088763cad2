"""One file a workload: its data, model, loss and metric, as a Workload."""
