"""The engine `ray`: clients' training on the nodes of a Ray cluster.

An entry point of the group `covey.components` names it; Ray is imported when an engine is built.
"""
