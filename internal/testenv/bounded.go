package testenv

import (
	"fmt"
	"runtime"
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

// allocated is exact. Package runtime/metrics counts small allocations only when it takes more
// memory for their size, which can add hundreds of kilobytes of earlier ones.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
