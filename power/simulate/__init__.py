"""Simulated meters: devices that speak a real meter's protocol from a known waveform.

The devices are the honest half of every test: bytes as the meter would send them, energy
that is known exactly. One file per meter, named like the driver it answers.
"""
