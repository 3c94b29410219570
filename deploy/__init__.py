"""A federation on one machine: for the demo, the tests and the benchmark."""
