package listeners

import (
	"cmp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/internal/metric"
)

type peerMetrics struct {
	messages *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  prometheus.Counter

	mu   sync.Mutex
	seen map[string]bool
}

func newPeerMetrics(r metric.Registry, d *peer.Directory) *peerMetrics {
	m := &peerMetrics{
		messages: r.Counters("weir_peer_messages_total", "Messages to and from other nodes, by peer (a region, or unknown), direction (out, in) and result (ok, busy, unreachable, refused, version, failed).", "peer", "direction", "result"),
		bytes:    r.Counters("weir_peer_bytes_total", "Compressed bytes of messages and replies, by peer and direction.", "peer", "direction"),
		seconds:  r.Histograms("weir_peer_round_trip_seconds", "Time from a message to its reply, in seconds, by peer.", peerBuckets, "peer"),
		refused:  r.Counter("weir_peer_connections_refused_total", "Connections to listen.peer closed: more than 4096, more than 16 of one node from one address, or too many unfinished handshakes."),
		seen:     map[string]bool{},
	}
	r.GaugeFunc("weir_peer_nodes_down", "Nodes that do not answer this node.", func() float64 { return float64(d.Down()) })
	for _, name := range d.Regions() {
		m.begin(name)
	}
	return m
}

// observe counts one exchange.
func (m *peerMetrics) observe(x peer.Exchange) {
	name := cmp.Or(x.Region, "unknown")
	m.begin(name)
	m.messages.WithLabelValues(name, string(x.Direction), string(x.Result)).Inc()
	m.bytes.WithLabelValues(name, string(peer.Outgoing)).Add(float64(x.Sent))
	m.bytes.WithLabelValues(name, string(peer.Incoming)).Add(float64(x.Received))
	if x.Direction == peer.Outgoing && x.Result == peer.OK {
		m.seconds.WithLabelValues(name).Observe(x.Took.Seconds())
	}
}

// begin starts a region's series at 0, so that the first message is an increase.
func (m *peerMetrics) begin(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[name] {
		return
	}
	m.seen[name] = true
	m.seconds.WithLabelValues(name)
	for _, d := range []peer.Direction{peer.Outgoing, peer.Incoming} {
		for _, r := range peer.Results {
			m.messages.WithLabelValues(name, string(d), string(r))
		}
		m.bytes.WithLabelValues(name, string(d))
	}
}

// peerBuckets are round trips: within a region, and around the world.
var peerBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6, 1, 2.5, (5 * time.Second).Seconds()}
