package testenv

import "time"

// Patience is how long a test waits for something that it does not measure; only a failing test
// waits that long. It exceeds 30 s because a Consul agent whose full sync collides with a
// registration delays the sync, and every change with it, by 15 to 30 s.
const Patience = 2 * time.Minute
