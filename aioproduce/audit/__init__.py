"""What makes loss and duplicates provable: an id and a number in each record, and marks that tell the last."""
