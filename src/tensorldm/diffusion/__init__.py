"""Noise schedules and samplers; knows no network."""
