"""Algorithms of federated learning, composed of train, evaluate, select and aggregate."""
