"""Two trees of this project side by side: is anything slower or larger than it was?"""
