"""What a request and its surroundings amount to, judged from evidence alone: outcomes, doubts, breaches."""
