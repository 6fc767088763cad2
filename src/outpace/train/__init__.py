"""The Trainer: a loop that a person can read, and the strategies that hook into it."""
