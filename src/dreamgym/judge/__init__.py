"""A language model scores real and dreamt trajectories on the paper's four rubrics, unlabelled.

Plausibility is not truth: `dreamgym fidelity` measures truth.  A judge says how a trajectory reads.
"""
