"""Power meters, the recorder process and the energy under a trace."""
