package redisstore

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
)

// A store that has lost its data must not let a region's part of a limit be spent again. An
// extra key records since when the store has kept its data; scripts that find it missing
// write the current time. In a cluster, each slot has its own, so it moves with the keys
// that it covers.

const slots = 16384

// openedSingle is the name of that key without a cluster, as an argument that costs no
// allocation.
var openedSingle any = "weir:{~open}"

// openedNames are its names in a cluster, by slot.
var openedNames = sync.OnceValue(func() *[slots]any {
	var names [slots]any
	for i, left := 0, slots; left > 0; i++ {
		tag := "~" + strconv.FormatInt(int64(i), 36)
		if slot := crc16(tag) % slots; names[slot] == nil {
			names[slot] = "weir:{" + tag + "}:open"
			left--
		}
	}
	return &names
})

// opened returns its name for the slot of a key.
func (n *node) opened(key string) any {
	if n.cluster == nil {
		return openedSingle
	}
	return openedNames()[slotOf(key)]
}

// slotOf returns a key's cluster slot: the hash of what is in the first braces or, without
// any, of the whole key.
func slotOf(key string) uint16 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return crc16(key) % slots
}

// crc16 computes CRC-16/XMODEM, as the Redis Cluster specification requires.
func crc16(text string) (crc uint16) {
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			if carry := crc & 0x8000; carry != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// Open lets parts of limits be spent in windows that began before the store was empty.
func (s *Store) Open(ctx context.Context) error { return s.openSince(ctx, 0) }

// reopensWithin is the most time that may pass between reading a store's clock and marking
// since when the store has kept its data. It adds to what the scripts allow for clocks that
// differ.
const reopensWithin = 2 * time.Second

// Reopen lets parts of limits be spent in windows that begin 12 s from now, wherever the
// mark is missing.
func (s *Store) Reopen(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, reopensWithin)
	defer cancel()
	now, err := s.latest(bounded)
	if err != nil {
		return err
	}
	return s.openSince(bounded, now+(limiter.MaxClockBack+reopensWithin).Microseconds())
}

// latest returns the latest time by any master's clock.
func (s *Store) latest(ctx context.Context) (now int64, err error) {
	if s.config.Clock != nil {
		return s.config.Clock(), nil
	}
	var mu sync.Mutex
	ask := func(ctx context.Context, c *redis.Client) error {
		at, err := c.Time(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		now = max(now, at.UnixMicro())
		return err
	}
	if s.cluster == nil {
		err = ask(ctx, s.single)
	} else {
		err = s.cluster.ForEachMaster(ctx, ask)
	}
	return now, err
}

// openSince writes since when the store has kept its data, wherever that mark is missing.
func (s *Store) openSince(ctx context.Context, since int64) error {
	if s.cluster == nil {
		return s.single.SetNX(ctx, openedSingle.(string), since, 0).Err()
	}
	const batch = 1024
	names := openedNames()
	for from := 0; from < slots; from += batch {
		_, err := s.cluster.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, name := range names[from : from+batch] {
				pipe.SetNX(ctx, name.(string), since, 0)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
