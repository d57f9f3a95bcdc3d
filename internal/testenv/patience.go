package testenv

import "time"

// Patience is how long a test waits for what it does not measure; only a failing test
// waits that long. It is more than 30 s because a Consul agent whose full sync meets a
// registration puts the sync, and with it every change, off by 15 to 30 s.
const Patience = time.Minute
