package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
)

const (
	mostLanes   = 100
	mostWorkers = 10_000
)

var errLanes = fmt.Errorf("lane: this origin has %d already; ask for one of them, or restart it", mostLanes)

// lanes give requests as few workers as a busy site has; a request that finds none free waits.
type lanes struct {
	mu  sync.Mutex
	all map[string]chan struct{} // by name and workers
}

// enter waits for a worker of the lane that the query names, if any, and returns a function that
// frees it.
func (l *lanes) enter(ctx context.Context, query url.Values) (leave func(), err error) {
	name := query.Get("lane")
	if name == "" {
		return func() {}, nil
	}
	workers, err := strconv.Atoi(query.Get("workers"))
	if err != nil || workers < 1 || workers > mostWorkers {
		return nil, fmt.Errorf("workers must be a number from 1 to %d, of the lane", mostWorkers)
	}
	lane, err := l.lane(fmt.Sprintf("%s %d", name, workers), workers)
	if err != nil {
		return nil, err
	}
	select {
	case lane <- struct{}{}:
		return func() { <-lane }, nil
	case <-ctx.Done():
		return nil, errGone
	}
}

// errGone means that the client did not wait.
var errGone = errors.New("the client has gone")

func (l *lanes) lane(key string, workers int) (chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.all[key]
	if lane == nil {
		if len(l.all) >= mostLanes {
			return nil, errLanes
		}
		lane = make(chan struct{}, workers)
		l.all[key] = lane
	}
	return lane, nil
}
