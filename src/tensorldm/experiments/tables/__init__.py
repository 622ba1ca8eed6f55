"""The published tables, each made from stored long tables alone."""
