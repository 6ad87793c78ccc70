"""Commands about the paper: its experiments (``paper``) and the page that shows them (``report``)."""
