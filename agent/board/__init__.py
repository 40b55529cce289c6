"""What the board is and in which condition it is: cores, clocks, temperatures, load."""
