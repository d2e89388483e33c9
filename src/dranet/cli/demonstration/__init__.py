"""How the demo plays its stories and shows them."""
