"""What measured facts mean."""
