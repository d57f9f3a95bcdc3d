package testenv

import (
	"fmt"
	"runtime/metrics"
	"testing"
	"time"
)

// Bounded runs code on a fuzzer's hostile input. It fails the test if run, or concurrent code,
// allocates more than that many bytes, and panics if run does not end, so that the fuzzer keeps
// the input.
func Bounded(t testing.TB, bytes uint64, run func()) {
	t.Helper()
	hangs := time.AfterFunc(Patience, func() { panic(fmt.Sprintf("%s does not end within %s", t.Name(), Patience)) })
	defer hangs.Stop()
	before := allocated()
	run()
	if took := allocated() - before; took > bytes {
		t.Errorf("allocated %d bytes, at most %d are allowed", took, bytes)
	}
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
