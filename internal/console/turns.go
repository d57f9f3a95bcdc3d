package console

import (
	"context"
	"sync"
	"time"
)

// turns bounds concurrent operations, each of which asks every region: all of them, and those of one
// person.
type turns struct {
	all  chan struct{}
	each int

	mu     sync.Mutex
	people map[string]*turnsOf
}

// turnsOf are those of one person who has any, or waits for one.
type turnsOf struct {
	own   chan struct{}
	users int
}

// turnWait is how long a request waits for its turn.
const turnWait = 5 * time.Second

func newTurns(all, each int) *turns {
	return &turns{all: make(chan struct{}, all), each: each, people: map[string]*turnsOf{}}
}

// take waits for a turn of a person. It reports false if there is none in time.
func (t *turns) take(ctx context.Context, person string) (end func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	t.mu.Lock()
	of := t.people[person]
	if of == nil {
		of = &turnsOf{own: make(chan struct{}, t.each)}
		t.people[person] = of
	}
	of.users++
	t.mu.Unlock()
	var held []chan struct{}
	end = func() {
		for _, slots := range held {
			<-slots
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(t.people, person)
		}
	}
	for _, slots := range []chan struct{}{of.own, t.all} {
		select {
		case slots <- struct{}{}:
			held = append(held, slots)
		case <-ctx.Done():
			end()
			return nil, false
		}
	}
	return end, true
}
