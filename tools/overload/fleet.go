package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
	"github.com/weir-edge/weir/tools/internal/overload"
)

// fleet is an origin and the nodes that share it.
type fleet struct {
	lab      *lab
	program  string
	origin   string
	settings shedder.Settings
	load     *load

	mu    sync.Mutex
	nodes []*node // those that take requests
}

// join changes the number of nodes to n. Nodes that leave keep running without requests; new ones
// know nothing.
func (f *fleet) join(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.nodes) < n {
		next, err := f.lab.startNode(f.program, f.origin, f.settings, true)
		if err != nil {
			return err
		}
		f.nodes = append(f.nodes, next)
	}
	f.nodes = f.nodes[:n]
	f.load.aim(f.nodes)
	return nil
}

// change applies the changes when they are due, until ctx ends.
func (f *fleet) change(ctx context.Context, changes []overload.Change) error {
	for _, c := range changes {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.At - time.Since(f.load.begin)):
		}
		if c.Nodes > 0 {
			if err := f.join(c.Nodes); err != nil {
				return err
			}
		}
		args := url.Values{}
		if c.Slowness > 0 {
			args.Set("slowness", fmt.Sprint(c.Slowness))
		}
		if c.Delay > 0 {
			args.Set("delay", c.Delay.String())
		}
		if len(args) == 0 {
			continue
		}
		resp, err := http.Get("http://" + f.origin + "/change?" + args.Encode())
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the origin does not change: %s", resp.Status)
		}
	}
	return nil
}

// samples queries the nodes once per overload.Interval, until ctx ends.
func (f *fleet) samples(ctx context.Context, begin time.Time) ([]overload.Sample, error) {
	var all []overload.Sample
	tick := time.NewTicker(overload.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return all, nil
		case <-tick.C:
		}
		s, err := f.sample(ctx)
		switch {
		case ctx.Err() != nil:
			return all, nil
		case err != nil:
			return all, err
		}
		s.At = time.Since(begin)
		all = append(all, s)
	}
}

// sample returns one node's sample, or for several the means of levels and probabilities.
func (f *fleet) sample(ctx context.Context) (sum overload.Sample, err error) {
	f.mu.Lock()
	nodes := f.nodes
	f.mu.Unlock()
	sum.Probability = make([]float64, overload.Classes)
	for _, n := range nodes {
		s, err := n.sample(ctx)
		if err != nil {
			return sum, err
		}
		sum.Signal = s.Signal
		sum.Level += s.Level / float64(len(nodes))
		sum.InFlight += s.InFlight
		sum.Knee, sum.Base, sum.Rate = sum.Knee+s.Knee, max(sum.Base, s.Base), sum.Rate+s.Rate
		for i, p := range s.Probability {
			sum.Probability[i] += p / float64(len(nodes))
		}
	}
	return sum, nil
}
