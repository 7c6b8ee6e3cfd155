"""What the acceptance laws do to a text, summed over every outcome instead of sampled."""
