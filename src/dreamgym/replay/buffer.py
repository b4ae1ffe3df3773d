"""TEMP."""
from __future__ import annotations
import numpy as np, msgspec
from typing import Any
from dreamgym.types import Transition
class Neighbour(msgspec.Struct, frozen=True):
    transition: Transition
    similarity: float
class ReplayBuffer:
    def __init__(self, folder: Any, encoder: Any, *, capacity: int, forbidden_splits: Any = ()) -> None:
        self.encoder=encoder; self.rows=[]; self.v=np.zeros((0,encoder.dim),np.float32); self.cap=capacity; self.nreal=0; self.seen=set()
    def __len__(self): return len(self.rows)
    def key(self,s,a): return s[-300:]+'\n> '+a
    def add(self,ts):
        ts=[t for t in ts if (self.key(t.observation.text,t.action),t.next_observation.text) not in self.seen]
        if not ts: return
        for t in ts: self.seen.add((self.key(t.observation.text,t.action),t.next_observation.text))
        ts=ts[:max(0,self.cap-len(self.rows))]
        if not ts: return
        self.rows+=ts; self.v=np.concatenate([self.v,self.encoder.encode([self.key(t.observation.text,t.action) for t in ts])])
    def query(self,s,a,*,k,suite,exclude_task=None):
        if not self.rows: return []
        q=self.encoder.encode([self.key(s,a)])[0]; sim=self.v@q
        idx=np.argpartition(-sim,min(len(sim)-1,k+40))[:k+40]; idx=idx[np.argsort(-sim[idx],kind='stable')]
        out=[]
        for i in idx:
            if self.rows[i].task_id!=exclude_task: out.append(Neighbour(self.rows[i],float(sim[i])))
            if len(out)==k: break
        return out
    def state_dict(self): return {}
    def load_state_dict(self,s): pass
