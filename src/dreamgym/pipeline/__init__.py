"""Assembly: settings in, suites, models, dreams and loops out; what the commands are built from.

The modules `settings`, `suites`, `logs`, `collecting` and `evaluating` need no training stack.
"""
