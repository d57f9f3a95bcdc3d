package shedder

import "sync"

// uploadShare is the part of a class's cap that one client's uploads may take, as a divisor.
const uploadShare = 4

// uploads counts the requests of each client whose bodies are still arriving. Only clients
// with such requests have an entry.
type uploads struct {
	mu       sync.Mutex
	byClient map[uint64]int64
}

// enter counts one more unless the client has most already. It returns how many it had.
func (u *uploads) enter(client uint64, most int64) (before int64, entered bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if before = u.byClient[client]; before >= most {
		return before, false
	}
	if u.byClient == nil {
		u.byClient = map[uint64]int64{}
	}
	u.byClient[client] = before + 1
	return before, true
}

func (u *uploads) leave(client uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byClient[client]--; u.byClient[client] == 0 {
		delete(u.byClient, client)
	}
}

// AdmitUpload is Admit for a request whose body is still arriving. A client decides how
// long that takes, so its uploads may take at most a quarter of a class's cap, until they
// are complete or answered. client is a hash that identifies it.
func (s *Shedder) AdmitUpload(class int, user, client uint64) (Permit, bool) {
	v := s.verdicts.Load()
	if !v.enabled {
		return s.Admit(class, user)
	}
	class = v.class(class)
	held, entered := s.uploads.enter(client, v.uploads[class])
	if !entered {
		return Permit{reason: v.byUploads[class], held: held}, false
	}
	p, ok := s.Admit(class, user)
	if p.client, p.uploads = client, ok; !ok {
		s.uploads.leave(client)
	}
	return p, ok
}

// AwaitClient records whether the node waits for the client to send more of the body. That
// time does not show how busy the origin is, unlike the time in which the origin reads.
func (p *Permit) AwaitClient(awaits bool) {
	switch {
	case awaits && p.stage == sent:
		p.stage = paused
		p.shedder.waiting.Add(-1)
	case !awaits && p.stage == paused:
		p.stage = sent
		p.shedder.waiting.Add(1)
	}
}

// Received records that the body is complete.
func (p *Permit) Received() {
	if p.uploads {
		p.uploads = false
		p.shedder.uploads.leave(p.client)
	}
}
