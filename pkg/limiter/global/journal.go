package global

// journal orders values by when they last changed. Every change has a position, so
// everything a peer lacks lies after the last position it acknowledged. A value that
// changes again moves to the end: however long a peer is disconnected, the journal holds
// each value once, and needs no queue per peer.
type journal[V any] struct {
	first, last *record[V]
	position    uint64 // of the last change
	size        int
}

// record is a value's place in the journal. Position 0 means that it has none.
type record[V any] struct {
	value    V
	position uint64
	prev     *record[V]
	next     *record[V]
}

// touch moves r to the next position.
func (j *journal[V]) touch(r *record[V]) {
	if r.position != 0 {
		j.remove(r)
	}
	j.position++
	r.position, r.prev, r.next = j.position, j.last, nil
	if j.last == nil {
		j.first = r
	} else {
		j.last.next = r
	}
	j.last = r
	j.size++
}

// remove drops r from the journal.
func (j *journal[V]) remove(r *record[V]) {
	if r.position == 0 {
		return
	}
	if r.prev == nil {
		j.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		j.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.position, r.prev, r.next = 0, nil, nil
	j.size--
}

// since visits up to most values that changed after the position `from` and not after `to`,
// oldest change first. It returns the position up to which nothing is missing.
func (j *journal[V]) since(from, to uint64, most int, visit func(V)) (reached uint64) {
	r := j.last
	if r == nil || r.position <= from {
		return max(from, to)
	}
	if from == 0 {
		r = j.first
	}
	for r.prev != nil && r.prev.position > from {
		r = r.prev
	}
	reached = from
	for ; r != nil && r.position <= to; r = r.next {
		if most == 0 {
			return reached
		}
		visit(r.value)
		reached = r.position
		most--
	}
	return max(from, to)
}
