"""Small helpers every other folder may use: checks, errors, files, lazy names, progress bars, threads, vectors.

Nothing here knows what a device is. This folder imports from no other folder of the package.
"""
