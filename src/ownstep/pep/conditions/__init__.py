"""Second step of a worst case: the function classes (``classes``) and the conditions that enter the program
(``gram``).

``cuts`` chooses few conditions, ``assemble`` writes them as sparse rows. May import from pep/trace.
"""
