package edge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/internal/networks"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// loadNetworks bounds one attempt to read the chunks that the index names.
	loadNetworks = 30 * time.Second
	// lookAtNetworks is how often to check whether an entry has expired.
	lookAtNetworks = time.Second
	// maxNetworkCache is the size of the longest list, with some room.
	maxNetworkCache = 128 << 20
)

// networkKeeper keeps active the client networks that operators block or allow in the
// region. It follows the index in Consul, and reads the chunks that have changed.
type networkKeeper struct {
	*documents.Keeper[networks.List]
	log     *slog.Logger
	metrics *metrics
	consul  *consul.Client
	blocked logs.Sampler
	active  atomic.Pointer[networks.Table] // never nil
}

// openNetworks prepares to follow the client networks, and activates the cached ones. It
// does not connect yet.
func (e *Edge) openNetworks() (err error) {
	e.metrics.clientNetworksUp.Set(1)
	for _, action := range []networks.Action{networks.Block, networks.Allow} {
		e.metrics.clientNetworks.WithLabelValues(string(action))
	}
	if e.consul == nil {
		return nil
	}
	k := &networkKeeper{log: e.log, metrics: e.metrics, consul: e.consul}
	k.active.Store(&networks.Table{})
	k.Keeper, err = openDocument(e, documents.Config[networks.List]{
		Kind: documents.Kind[networks.List]{Name: "clients", What: "networks of clients", Optional: true, Parts: &documents.Parts[networks.List]{
			Key: networks.CurrentKey(e.consul), Load: k.load, Torn: networks.ErrMismatch,
			Encode: networkFileOf(e.config.CacheOwner()).encode, Decode: networkFileOf(e.config.CacheOwner()).decode, MaxCache: maxNetworkCache,
		}},
		Activate: k.activate,
		Metrics:  documents.Metrics{SourceUp: e.metrics.clientNetworksUp, CacheErrors: e.metrics.clientNetworkDisk},
	}, e.consul, e.config.Clients.Cache)
	e.listed, e.decider.Networks, e.decider.Block = k, k.active.Load, k.block
	return err
}

// run follows until ctx ends, and removes expired entries from the table.
func (k *networkKeeper) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.Run(ctx) })
	tick := time.NewTicker(lookAtNetworks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if next := k.active.Load().Next; !next.IsZero() && !k.consul.Now().Before(next) {
				k.Refresh()
			}
		}
	}
}

// errNetworksGone is not a change: operators never remove the index on purpose.
var errNetworksGone = errors.New("is missing; import the output of regionctl clients export for another region")

// load reads the list that an index names.
func (k *networkKeeper) load(ctx context.Context, entry *consul.Entry, known *documents.Document[networks.List]) (*documents.Document[networks.List], error) {
	if entry == nil {
		if known != nil {
			return nil, k.consul.Unreadable(networks.CurrentKey(k.consul), errNetworksGone)
		}
		return nil, nil
	}
	x, err := networks.ParseIndex(entry.Value)
	if err != nil {
		return nil, k.consul.Unreadable(entry.Key, err)
	}
	before := &networks.List{}
	if known != nil {
		before = known.Made
	}
	ctx, cancel := context.WithTimeout(ctx, loadNetworks)
	defer cancel()
	l, err := networks.Load(ctx, k.consul, x, before, nil)
	if err != nil {
		return nil, err
	}
	return documents.Local(l.Version(), l, adminapi.SourceConsul), nil
}

// activate builds a table of the unexpired entries by the region's clock, because its
// operators wrote the times.
func (k *networkKeeper) activate(d *documents.Document[networks.List], _ bool) error {
	before := k.active.Load()
	t := networks.NewTable(d.Pointer.Version, d.Made.Entries(), k.consul.Now())
	k.active.Store(t)
	k.metrics.clientNetworks.WithLabelValues(string(networks.Block)).Set(float64(t.Blocks))
	k.metrics.clientNetworks.WithLabelValues(string(networks.Allow)).Set(float64(t.Allows))
	if t.Version != before.Version {
		k.log.Info("networks of clients active", "version", t.Version, "blocks", t.Blocks, "allows", t.Allows, "source", d.Source)
	}
	return nil
}

// networkFile is the content of the file that keeps the client networks.
type networkFile struct {
	documents.Owner
	List *networks.List `json:"networks"`
}

func networkFileOf(owner documents.Owner) networkFile { return networkFile{Owner: owner} }

func (f networkFile) encode(d *documents.Document[networks.List]) ([]byte, error) {
	f.List = d.Made
	return json.Marshal(f)
}

func (f networkFile) decode(data []byte) (*documents.Document[networks.List], error) {
	var found networkFile
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
	return documents.Local(found.List.Version(), found.List, adminapi.SourceCache), nil
}

// block counts a blocked request, and logs some.
func (k *networkKeeper) block(r *decide.Request) {
	k.metrics.clientBlocks.Inc()
	if skipped, ok := k.blocked.Sample(r.Began); ok {
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
