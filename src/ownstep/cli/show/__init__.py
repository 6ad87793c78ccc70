"""Commands about the paper: its experiments (``paper``) and the page that shows them (``report``).

May import from every folder and from the modules of cli/ above.
"""
