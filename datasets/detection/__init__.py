"""Detection: boxes out of whatever a model gives, and what they are worth.

Boxes are ``(top, left, bottom, right)`` everywhere inside: in pixels of the model's input
while a head reads them, as shares of the photograph's sides afterwards.
"""
