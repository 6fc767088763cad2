"""Remedies: changes against a cause, one file each."""
