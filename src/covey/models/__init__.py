"""The networks that covey ships, and how a model is built, checked and read."""
