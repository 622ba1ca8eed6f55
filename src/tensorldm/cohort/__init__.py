"""Virtual subjects: anatomies, warps and a scanner."""
