"""How far a dream can be trusted: measured against the real environment, every real step counted.

`measure` answers held-out real steps with the experience model, lets it run freely, replays dreamt
episodes for real and sets policies side by side; `calibration`, `rank`, `bound` and `costs` are
pure functions of what was counted; `page` writes it down in plain words.
"""
