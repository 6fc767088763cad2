"""Data for training, made faster: other ways to fetch, decode, cache and work ahead."""
