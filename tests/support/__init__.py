"""What the tests about the suite share."""
