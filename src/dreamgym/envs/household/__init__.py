"""Text household: find, clean, heat, cool, slice, light and place objects in a room.

`engine` modules hold the rules; `reader.py` reads the texts and must not import them.
"""
