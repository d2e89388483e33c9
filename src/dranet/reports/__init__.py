"""What a benchmark's output says, held against what the hardware and the allocation should give. Pure: text in, words
out.
"""
