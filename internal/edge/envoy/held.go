package envoy

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-edge/weir/internal/edge/frames"
)

// Bounds of the memory that open streams take. Each connection may have maxStreams, and each
// stream's message may fill its window, which would be gigabytes of a few connections.
const (
	// maxHeld is how many bytes the open streams of all connections may take, by the estimates below.
	maxHeld = 256 << 20
	// streamBytes is for a stream, its goroutine and its header, and its answer.
	streamBytes = 16 << 10
	// A DATA frame takes up to four times its length in gRPC's buffers, and something by itself.
	dataFactor, dataBytes = 4, 64
	// readAtOnce is how many bytes of one connection are read before others have their turn. gRPC
	// would read 32 KiB, which take milliseconds if they are small frames: too long for calls on
	// other connections, which wait for their turn several times.
	readAtOnce = 4 << 10
)

// meter is a connection above TLS that estimates how much memory its open streams take: those that
// neither side has reset and whose answer the node has not written in full. It also counts the
// frames that no call needs.
type meter struct {
	net.Conn
	server  *Server
	held    atomic.Int64 // bytes of all streams
	writing sync.Mutex   // held around writes

	mu      sync.Mutex // guards the rest; server.metering is never locked while it is held
	in, out frames.Follower
	extra   frames.Account
	last    uint32           // the highest stream of the caller
	streams map[uint32]int64 // open ones, and the bytes that each takes
	ended   bool             // no longer counted
}

// metered is a listener whose connections are meters.
type metered struct {
	net.Listener
	server *Server
}

func (l metered) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m := newMeter(accepted, l.server)
	m.in.SkipPreface()
	l.server.metering.Lock()
	defer l.server.metering.Unlock()
	l.server.meters[m] = struct{}{}
	return m, nil
}

func newMeter(c net.Conn, v *Server) *meter {
	return &meter{Conn: c, server: v, streams: map[uint32]int64{}, extra: frames.Open(v.config.extra, time.Now())}
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b[:min(len(b), readAtOnce)])
	if n == readAtOnce {
		runtime.Gosched()
	}
	held, flood := m.came(b[:n])
	if held > m.server.config.maxHeld {
		m.server.relieve()
	}
	if flood {
		m.server.config.Refused(Flood)
		m.refuse()
		return 0, errFlood
	}
	return n, err
}

// came follows what the caller sent. It returns what all connections hold, and whether the caller
// sent too many frames that no call needs.
func (m *meter) came(b []byte) (held int64, flood bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var change int64
	m.in.Follow(b, func(f *frames.Frame) {
		taken, open := m.streams[f.Stream]
		switch {
		case f.Kind == http2.FrameHeaders && f.Stream > m.last:
			m.last = f.Stream
			m.streams[f.Stream] = streamBytes
			change += streamBytes
			m.extra.Earn(extraPerCall)
			return
		case f.Kind == http2.FrameData && open:
			if f.Data() > 0 {
				more := int64(dataFactor*f.Length + dataBytes)
				m.streams[f.Stream] = taken + more
				change += more
			}
			if f.Ends() || f.Data() >= wholeData {
				return
			}
		case f.Kind == http2.FrameRSTStream && open:
			delete(m.streams, f.Stream)
			change -= taken
			return
		}
		flood = m.extra.Spend() || flood
	})
	return m.count(change), flood
}

func (m *meter) Write(b []byte) (int, error) {
	m.writing.Lock()
	defer m.writing.Unlock()
	n, err := m.Conn.Write(b)
	m.mu.Lock()
	defer m.mu.Unlock()
	var change int64
	m.out.Follow(b[:n], func(f *frames.Frame) {
		if f.Ends() || f.Kind == http2.FrameRSTStream {
			change -= m.streams[f.Stream]
			delete(m.streams, f.Stream)
		}
	})
	m.count(change)
	return n, err
}

// count adds to what the connection holds, and returns what all do. Callers hold mu.
func (m *meter) count(change int64) int64 {
	if change == 0 || m.ended {
		return 0
	}
	m.held.Add(change)
	return m.server.held.Add(change)
}

// relieve closes the connection that holds the most, if all hold too much.
func (v *Server) relieve() {
	v.metering.Lock()
	var most *meter
	if v.held.Load() > v.config.maxHeld {
		for m := range v.meters {
			if most == nil || m.held.Load() > most.held.Load() {
				most = m
			}
		}
	}
	if most != nil {
		v.forget(most)
	}
	v.metering.Unlock()
	if most != nil {
		v.config.Refused(Memory)
		most.cut()
	}
}

// forget no longer counts a connection. Callers hold metering.
func (v *Server) forget(m *meter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.ended = true
		delete(v.meters, m)
		v.held.Add(-m.held.Load())
	}
}

func (m *meter) Close() error {
	m.server.metering.Lock()
	m.server.forget(m)
	m.server.metering.Unlock()
	return m.Conn.Close()
}

// cut closes the connection without a word: TLS would wait for a caller that does not read.
func (m *meter) cut() {
	if t, ok := m.Conn.(*tls.Conn); ok {
		_ = t.NetConn().Close()
		return
	}
	_ = m.Conn.Close()
}
