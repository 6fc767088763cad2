"""What Outpace knows, as frozen data: each record reads from and writes to JSON (TOML for recipes)."""
