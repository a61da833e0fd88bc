"""The compiled layer: loops over bytes. No file names, no exceptions for bad data.

Modules are compiled without bounds checks and without negative indices: ``names[-1]`` reads out of
bounds here.
"""
