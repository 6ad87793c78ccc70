"""The two files in which the demo's app differs from the one that ``ownstep federate init`` writes."""
