package edge

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/networks"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// loadNetworks bounds one attempt to read the chunks that the index names.
	loadNetworks = 30 * time.Second
	// lookAtNetworks is how often to check whether an entry has expired.
	lookAtNetworks = time.Second
)

// networkKeeper keeps active the client networks that operators block or allow in the
// region. It follows the index in Consul, and reads the chunks that have changed.
type networkKeeper struct {
	log     *slog.Logger
	metrics *metrics
	consul  *consul.Client
	changed func() // tells the registrar to update the registration
	blocked sampler

	active     atomic.Pointer[networks.Table] // never nil
	state      *documents.Condition
	cache      *networkCache
	cacheState *documents.Condition

	mu     sync.Mutex // held while replacing the table
	list   *networks.List
	source string
	since  time.Time
	asked  error // why the index, or what it names, could not be read
	loaded error
}

// openNetworks prepares to follow the client networks, and activates the cached ones. It
// does not connect yet.
func (e *Edge) openNetworks() {
	e.metrics.clientNetworksUp.Set(1)
	for _, action := range []networks.Action{networks.Block, networks.Allow} {
		e.metrics.clientNetworks.WithLabelValues(string(action))
	}
	if e.consul == nil {
		return
	}
	k := &networkKeeper{log: e.log, metrics: e.metrics, consul: e.consul, changed: e.changed, list: &networks.List{}, source: adminapi.NoVersion, asked: documents.ErrNoAnswer}
	k.state = documents.NewCondition(e.log, "networks of clients cannot be read from consul; the node keeps what it has", "networks of clients can be read from consul again", documents.ErrNoAnswer)
	k.cacheState = documents.NewCondition(e.log, "networks of clients cannot be cached; a restart while consul is unreachable has none", "networks of clients are cached again", nil)
	k.cache = newNetworkCache(e.config.Clients.Cache, e.config.CacheOwner())
	e.metrics.clientNetworksUp.Set(0)
	k.active.Store(&networks.Table{})
	if l, err := k.cache.read(); err != nil {
		e.metrics.clientNetworkDisk.Inc()
		e.log.Error("cached networks of clients not used", "error", err)
	} else if l != nil {
		k.take(l, adminapi.SourceCache)
	}
	e.listed, e.decider.Networks, e.decider.Block = k, k.active.Load, k.block
}

// run follows until ctx ends.
func (k *networkKeeper) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	found := make(chan *consul.Entry, 1) // the latest index
	wg.Go(func() {
		k.consul.Watch(ctx, networks.CurrentKey(k.consul), func(err error) { k.note(&k.asked, err) }, func(entry *consul.Entry) {
			select {
			case <-found:
			default:
			}
			found <- entry
		})
	})
	wg.Go(func() { k.load(ctx, found) })
	wg.Go(func() { k.cache.run(ctx, k.noteCache) })
	tick := time.NewTicker(lookAtNetworks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.end()
		}
	}
}

// load activates what each index names, and retries until it succeeds.
func (k *networkKeeper) load(ctx context.Context, found <-chan *consul.Entry) {
	var entry *consul.Entry
	var again <-chan time.Time
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case entry = <-found:
			failures = 0
		case <-again:
		}
		err := k.resolve(ctx, entry)
		if ctx.Err() != nil {
			return
		}
		// A chunk newer than the index is normal while an operator changes the list.
		if again = nil; err != nil {
			again = time.After(consul.Backoff(failures, rand.Float64()))
			failures++
		}
		if failures != 1 || !errors.Is(err, networks.ErrMismatch) {
			k.note(&k.loaded, err)
		}
	}
}

// errNetworksGone is not a change: operators never remove the index on purpose.
var errNetworksGone = errors.New("is missing; import the output of regionctl clients export for another region")

func (k *networkKeeper) resolve(ctx context.Context, entry *consul.Entry) error {
	k.mu.Lock()
	known := k.list
	k.mu.Unlock()
	if entry == nil {
		if known.Index != nil {
			return k.consul.Unreadable(networks.CurrentKey(k.consul), errNetworksGone)
		}
		return nil
	}
	x, err := networks.ParseIndex(entry.Value)
	if err != nil {
		return k.consul.Unreadable(entry.Key, err)
	}
	ctx, cancel := context.WithTimeout(ctx, loadNetworks)
	defer cancel()
	l, err := networks.Load(ctx, k.consul, x, known, nil)
	if err != nil {
		return err
	}
	k.take(l, adminapi.SourceConsul)
	k.cache.put(l)
	return nil
}

// take activates a list.
func (k *networkKeeper) take(l *networks.List, source string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	same := k.list.Version() == l.Version()
	k.list, k.source = l, source
	t := k.activate()
	if same {
		return
	}
	k.since = time.Now()
	k.log.Info("networks of clients active", "version", t.Version, "blocks", t.Blocks, "allows", t.Allows, "source", source)
	k.changed()
}

// activate builds a table of the unexpired entries by the region's clock, because its
// operators wrote the times.
func (k *networkKeeper) activate() *networks.Table {
	t := networks.NewTable(k.list.Version(), k.list.Entries(), k.consul.Now())
	k.active.Store(t)
	k.metrics.clientNetworks.WithLabelValues(string(networks.Block)).Set(float64(t.Blocks))
	k.metrics.clientNetworks.WithLabelValues(string(networks.Allow)).Set(float64(t.Allows))
	return t
}

// end removes expired entries from the table.
func (k *networkKeeper) end() {
	if next := k.active.Load().Next; next.IsZero() || k.consul.Now().Before(next) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.activate()
}

// note records the outcome of one of the two kinds of queries.
func (k *networkKeeper) note(which *error, err error) {
	k.mu.Lock()
	*which = err
	err = cmp.Or(k.asked, k.loaded)
	k.mu.Unlock()
	k.state.Note(err)
	k.metrics.clientNetworksUp.Set(oneIf(err == nil))
}

func (k *networkKeeper) noteCache(err error) {
	k.cacheState.Note(err)
	if err != nil {
		k.metrics.clientNetworkDisk.Inc()
	}
}

// block counts a blocked request, and logs some.
func (k *networkKeeper) block(r *decide.Request) {
	k.metrics.clientBlocks.Inc()
	if skipped, ok := k.blocked.sample(r.Began); ok {
		e := r.Listed
		k.log.Info("request blocked", "client", r.Client.String(), "network", e.Network.String(), "by", e.By, "reason", e.Reason, "not_logged", skipped)
	}
}

// meta adds the registered fields.
func (k *networkKeeper) meta(meta map[string]string) {
	meta[consul.MetaClientsSchema] = strconv.Itoa(networks.Schema)
	if v := k.active.Load().Version; v != "" {
		meta[consul.MetaClientsVersion] = v
	}
}

// showClients shows which networks are active.
func (e *Edge) showClients(w http.ResponseWriter, _ *http.Request) {
	v := adminapi.Clients{Node: e.config.Node.ID, Source: adminapi.NoVersion}
	if k := e.listed; k != nil {
		k.mu.Lock()
		t := k.active.Load()
		v.Version, v.Blocks, v.Allows, v.Next = t.Version, t.Blocks, t.Allows, t.Next
		v.Source, v.Since = k.source, k.since.UTC()
		k.mu.Unlock()
		v.Consul, v.Cache = k.state.View(), k.cacheState.View()
	}
	writeJSON(w, http.StatusOK, v)
}
