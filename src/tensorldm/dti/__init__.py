"""Maths of tensors: pure functions on torch tensors, CPU and GPU, any batch shape."""
