package edge

import (
	"runtime/debug"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Making a large document ready takes a core for a quarter of a second, and requests
// would wait for it. With rests it takes a part of a core, for longer.
const (
	workAtOnce = 500 * time.Microsecond
	restFor    = 1500 * time.Microsecond
	restWithin = time.Second // of the beginning: rules are to be in force soon

	// gcPercent lets the garbage of one document grow before it is collected. The
	// collector uses every core that is idle, and would run five times over otherwise.
	gcPercent = 400
)

// compiling lets one document be made ready at a time: gcPercent is the process's.
var compiling sync.Mutex

// compile makes a document ready to be activated. It rests unless nobody waits: before
// there are rules, and when the node stops.
func (k *ruleKeeper) compile(document []byte) (*rules.Set, error) {
	if k.running.Load() == nil {
		return rules.Load(document)
	}
	p := newPace(time.Now())
	compiling.Lock()
	defer compiling.Unlock()
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	return rules.LoadGently(document, func() {
		if p.restDue(time.Now()) && !k.hurry() {
			time.Sleep(restFor)
			p.woken = time.Now()
		}
	})
}

// pace says when work that others wait for is to rest.
type pace struct{ begin, woken time.Time }

func newPace(now time.Time) *pace { return &pace{now, now} }

func (p *pace) restDue(now time.Time) bool {
	return now.Sub(p.woken) >= workAtOnce && now.Sub(p.begin) <= restWithin
}
