"""Methods that make a tensor from a scan, all behind one contract."""
