"""What a torch model is trained by: one number per sample."""
