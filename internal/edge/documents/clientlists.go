package documents

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// loadTimeout bounds one attempt to read the chunks that the index names.
	loadTimeout = 30 * time.Second
	// expiryCheckEvery is how often to check whether an entry has expired.
	expiryCheckEvery = time.Second
	// maxListCache is the size of the longest list, with some room.
	maxListCache = 128 << 20
)

// ClientLists keeps the region's client lists active. It follows the pointer to the index in
// Consul, and reads the chunks that have changed.
type ClientLists struct {
	*Keeper[clientlist.List]
	log      *slog.Logger
	consul   *consul.Client
	sampler  logs.Sampler
	blocked  prometheus.Counter
	networks *prometheus.GaugeVec
	active   atomic.Pointer[clientlist.Table] // never nil
}

// OpenClientLists prepares to follow the client lists, and activates the cached ones. It
// does not connect yet. Without Consul it returns nil.
func OpenClientLists(node Node, cache string, registry metric.Registry) (k *ClientLists, err error) {
	k = &ClientLists{log: node.Log, consul: node.Consul}
	k.blocked = registry.Counter("weir_client_blocks_total", "Requests refused with 403 because an operator blocks the client's network.")
	k.networks = registry.Gauges("weir_client_networks", "Unexpired networks in the client list, by action: block, allow.", "action")
	up := registry.Gauge("weir_client_networks_source_up", "1 while the client list can be read from Consul, or without rules.source: consul.")
	failed := registry.Counter("weir_client_networks_cache_errors_total", "Failures to write or use clients.cache.")
	k.activated(&clientlist.Table{})
	if node.Consul == nil {
		up.Set(1)
		return nil, nil
	}
	file := clientListFile{Owner: node.Owner}
	k.Keeper, err = New(Config[clientlist.List]{
		Kind: Kind[clientlist.List]{Name: "clients", What: "client lists", Optional: true, PartLoader: &PartLoader[clientlist.List]{
			Key: clientlist.CurrentKey(node.Consul), Load: k.load, Torn: clientlist.ErrMismatch,
			Encode: file.encode, Decode: file.decode, MaxCache: maxListCache,
		}},
		Node: node, Activate: k.activate, Cache: cache, Metrics: Metrics{SourceUp: up, CacheErrors: failed},
	})
	return k, err
}

// Table returns the active lists, for requests.
func (k *ClientLists) Table() *clientlist.Table { return k.active.Load() }

// Run follows until ctx ends, and removes expired entries from the table.
func (k *ClientLists) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.Keeper.Run(ctx) })
	for consul.Pause(ctx, expiryCheckEvery) == nil {
		if next := k.active.Load().Next; !next.IsZero() && !k.consul.Now().Before(next) {
			k.Refresh()
		}
	}
}

// errListsGone is not a change: operators never remove the index on purpose.
var errListsGone = errors.New("is missing; import the output of regionctl clients export for another region")

// load reads the list that an index names.
func (k *ClientLists) load(ctx context.Context, entry *consul.Entry, known *Document[clientlist.List]) (*Document[clientlist.List], error) {
	if entry == nil {
		if known != nil {
			return nil, k.consul.Unreadable(clientlist.CurrentKey(k.consul), errListsGone)
		}
		return nil, nil
	}
	pointer, err := consul.ParsePointer(entry.Value)
	if err != nil {
		return nil, k.consul.Unreadable(entry.Key, err)
	}
	before := &clientlist.List{}
	if known != nil {
		before = known.Compiled
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	x, err := clientlist.LoadIndex(ctx, k.consul, pointer)
	if err != nil {
		return nil, err
	}
	l, err := clientlist.Load(ctx, k.consul, x, before, nil)
	if err != nil {
		return nil, err
	}
	return Local(l.Version(), l, adminapi.SourceConsul), nil
}

// activate builds a table of the unexpired entries by the region's clock, because its
// operators wrote the times.
func (k *ClientLists) activate(d *Document[clientlist.List], _ bool) error {
	before := k.active.Load()
	t := clientlist.NewTable(d.Pointer.Version, d.Compiled.Entries(), k.consul.Now())
	if k.activated(t); t.Version != before.Version {
		k.log.Info("client lists active", "version", t.Version, "blocks", t.Blocks, "allows", t.Allows, "source", d.Source)
	}
	return nil
}

func (k *ClientLists) activated(t *clientlist.Table) {
	k.active.Store(t)
	k.networks.WithLabelValues(string(clientlist.Block)).Set(float64(t.Blocks))
	k.networks.WithLabelValues(string(clientlist.Allow)).Set(float64(t.Allows))
}

// clientListFile is the content of the file that keeps the client lists.
type clientListFile struct {
	Owner
	List *clientlist.List `json:"networks"`
}

func (f clientListFile) encode(d *Document[clientlist.List]) ([]byte, error) {
	f.List = d.Compiled
	return json.Marshal(f)
}

func (f clientListFile) decode(data []byte) (*Document[clientlist.List], error) {
	var found clientListFile
	err := json.Unmarshal(data, &found)
	if err == nil && found.List == nil {
		err = errors.New("is damaged: it has no networks")
	}
	if err == nil {
		err = f.Refuse(found.Owner)
	}
	if err != nil {
		return nil, err
	}
	return Local(found.List.Version(), found.List, adminapi.SourceCache), nil
}

// Blocked counts a blocked request, and logs some.
func (k *ClientLists) Blocked(r *decide.Request) {
	k.blocked.Inc()
	if skipped, ok := k.sampler.Sample(r.Began); ok {
		e := r.ListEntry
		k.log.Info("request blocked", "client", r.Client.String(), "network", e.Network.String(), "by", e.By, "reason", e.Reason, "not_logged", skipped)
	}
}

// Meta adds the registered fields.
func (k *ClientLists) Meta(meta map[string]string) {
	meta[consul.MetaClientsSchema] = strconv.Itoa(clientlist.Schema)
	if v := k.active.Load().Version; v != "" {
		meta[consul.MetaClientsVersion] = v
	}
}
