-- token_bucket: a bucket of `burst` tokens, refilled at limit/window. Kept upside
-- down: the level is what is missing from a full bucket, and the capacity is burst.
algorithms.tb = bucket
