"""Small helpers every other room may use: checks, errors, files, lazy names, progress bars, threads, vectors.

Nothing here knows what a device is. This room imports from no other room of the package.
"""
