"""`dreamgym demo`: the whole method end to end on the household suite."""
