package ruleset

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// gcPercent lets the garbage of one document grow before it is collected. The collector
// uses every idle core, and would otherwise run five times while requests need them.
const gcPercent = 400

// compiling serializes compilations, because gcPercent applies to the whole process.
var compiling sync.Mutex

// compile makes a document ready to be activated.
func compile(document []byte) (*rules.Set, error) {
	compiling.Lock()
	defer compiling.Unlock()
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	return rules.Load(document)
}

// compile prepares a document for this node. A node that cannot reach other regions must
// not run a limit in escrow: all regions together would pass it several times.
func (a *Active) compile(document []byte) (*rules.Set, error) {
	set, err := compile(document)
	if err != nil || !a.alone {
		return set, err
	}
	for i, c := range set.Rules() {
		if g := c.Limit.Global; g != nil && g.Escrow && c.Mode != rules.Off {
			return nil, field.Errors{&field.Error{Path: fmt.Sprintf("rules[%d].global.mode", i), Msg: "escrow requires a connection to other regions; set listen.peer on every node, or use mode: eventual"}}
		}
	}
	return set, nil
}
