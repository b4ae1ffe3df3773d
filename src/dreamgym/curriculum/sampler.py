"""TEMP."""
from __future__ import annotations
from dreamgym.seeds import derive_random
class TaskSampler: pass
class UniformSampler:
    def __init__(self,tasks,*,seed,**k): self.t=list(tasks); self.s=seed; self.n=0
    def next_batch(self,n):
        r=derive_random(self.s,self.n); self.n+=1
        return r.sample(self.t,n)
    def observe(self,g): pass
    def metrics(self): return {}
    def state_dict(self): return {'n':self.n}
    def load_state_dict(self,s): self.n=s['n']
class CurriculumSampler(UniformSampler): pass
