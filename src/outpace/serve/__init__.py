"""Data for training, made faster: stored, fetched, decoded, kept, ordered, and made ahead."""
