"""The site's sources: the pages of docs, and those that are written from the code.

`python -m covey_site assemble FOLDER` writes them for Sphinx, and `python -m covey_site
check FOLDER` looks over what Sphinx has built.
"""
