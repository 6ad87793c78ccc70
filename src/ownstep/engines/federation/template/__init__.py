"""A federation of data owners: every site takes its own step."""
