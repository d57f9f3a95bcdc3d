package replay

import "container/heap"

// Active counts the requests in progress under each key, as a gateway that limits simultaneous
// requests does. Times are microseconds by the log's clock. The zero value counts none.
type Active[K comparable] struct {
	counts map[K]int64
	ends   endings[K]
}

// Count returns how many requests under a key are in progress.
func (a *Active[K]) Count(key K) int64 { return a.counts[key] }

// Begin counts a request under a key until the time end.
func (a *Active[K]) Begin(key K, end int64) {
	if a.counts == nil {
		a.counts = map[K]int64{}
	}
	a.counts[key]++
	heap.Push(&a.ends, ending[K]{end, key})
}

// Advance forgets the requests that have ended by now.
func (a *Active[K]) Advance(now int64) {
	for len(a.ends) > 0 && a.ends[0].at <= now {
		key := heap.Pop(&a.ends).(ending[K]).frees
		if a.counts[key]--; a.counts[key] == 0 {
			delete(a.counts, key)
		}
	}
}

// ending is the end of a request, with what it frees.
type ending[V any] struct {
	at    int64
	frees V
}

// endings is a heap of them, the next one first.
type endings[V any] []ending[V]

func (h endings[V]) Len() int           { return len(h) }
func (h endings[V]) Less(i, j int) bool { return h[i].at < h[j].at }
func (h endings[V]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *endings[V]) Push(x any)        { *h = append(*h, x.(ending[V])) }
func (h *endings[V]) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
