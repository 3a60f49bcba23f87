"""What to run: features, training, calibration, and asking a trained model."""
