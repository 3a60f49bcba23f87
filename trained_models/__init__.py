"""Trained models, one folder for each family and arch."""
