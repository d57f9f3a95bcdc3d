-- leaky_bucket: GCRA. A request is due at the theoretical arrival time (TAT) of a steady
-- flow and may come `burst` requests ahead of it. The level, in time, is TAT - now, and
-- the capacity is burst + 1: the tolerance and the request that is due. Source: ITU-T
-- I.371, virtual scheduling and continuous-state leaky bucket. The TAT alone would
-- suffice as the state, but could not reveal a clock that ran backwards.
algorithms.lb = bucket
