"""The rules: pure values in, values out. No IO, no clock, no randomness, no logging, no `daemon`.

What the outside provides is passed in: time and ids with every event, entry bodies through `tree.Bodies`.
"""
