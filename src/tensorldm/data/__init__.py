"""Prepared subjects: what is selected, scaled, fitted, stored, split and drawn from."""
