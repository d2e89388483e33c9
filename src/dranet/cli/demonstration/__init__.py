"""How the demo plays its scenarios and shows them."""
