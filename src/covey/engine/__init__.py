"""Engines: interchangeable ways to run the clients' local training and scoring."""
