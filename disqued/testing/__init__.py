"""Fakes that are shipped: what a test of disqued, or of a program around it, needs instead of the real thing."""
