"""Trained models made smaller and faster: channels removed, weights set to zero, int8."""
