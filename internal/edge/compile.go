package edge

import (
	"runtime/debug"
	"sync"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// gcPercent lets the garbage of one document grow before it is collected. The collector
// uses every idle core, and would otherwise run five times while requests want them.
const gcPercent = 400

// compiling lets one document compile at a time: gcPercent is the process's.
var compiling sync.Mutex

// compile makes a document ready to be activated.
func compile(document []byte) (*rules.Set, error) {
	compiling.Lock()
	defer compiling.Unlock()
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	return rules.Load(document)
}
