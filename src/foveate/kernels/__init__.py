"""GPU kernels in Triton, each beside a twin in plain torch that says what it computes.

Import them from their modules, `foveate.kernels.attention` for one. No module here needs Triton to be imported: a
machine without it runs the twins.
"""
