"""What is kept on disk, in a format of our own: the rows, and the plan of a claim made of them."""
