"""Gradient tables that ship with the package, and the script that makes them."""
