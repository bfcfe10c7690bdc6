"""TensorBoard, MLflow and Weights & Biases, which follow a run's rounds.

They are components of the kind `tracker`: an entry point of the group `covey.components` names
each, and its library is imported when a run begins.
"""
