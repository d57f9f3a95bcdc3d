// Package lua holds the scripts that decide inside Redis. Each algorithm is one file;
// Take and Return join them with the script that drives them.
package lua

import (
	_ "embed" // the scripts
	"strings"
)

var (
	//go:embed prelude.lua
	prelude string
	//go:embed fixed_window.lua
	fixedWindow string
	//go:embed sliding_window.lua
	slidingWindow string
	//go:embed bucket.lua
	bucket string
	//go:embed token_bucket.lua
	tokenBucket string
	//go:embed leaky_bucket.lua
	leakyBucket string
	//go:embed rolling_window_ring.lua
	rollingWindowRing string
	//go:embed rolling_window_set.lua
	rollingWindowSet string
	//go:embed concurrency.lua
	concurrency string
	//go:embed take.lua
	take string
	//go:embed return.lua
	giveBack string
)

// Take returns the script that decides requests. See take.lua for its arguments.
func Take() string { return join(take) }

// Return returns the script that gives back what Take charged. See return.lua.
func Return() string { return join(giveBack) }

func join(driver string) string {
	return strings.Join([]string{
		prelude, fixedWindow, slidingWindow, bucket, tokenBucket, leakyBucket,
		rollingWindowRing, rollingWindowSet, concurrency, driver,
	}, "\n")
}
