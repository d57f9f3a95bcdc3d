package decide

// SecondsBuckets are the buckets of times to decide: they are fine around a local round trip and have one just above the
// default time budget, 25 ms.
var SecondsBuckets = []float64{
	.000_001, .000_005, .000_025, .0001, .000_25, .0005, .001, .0025, .005, .01, .02, .025, .03, .05, .1, .25, 1,
}
