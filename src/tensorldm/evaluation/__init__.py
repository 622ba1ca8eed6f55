"""Measures on files alone: one long table for every method."""
