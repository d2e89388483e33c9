"""What a benchmark's output says, held against what hardware and allocation should give. Pure: text in, words out."""
