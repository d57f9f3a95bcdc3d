// Package corpus is the clients, benign and hostile, that behavior policies are judged on. Tests
// simulate them in virtual time, and k6 sends their requests to real edges.
package corpus

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
)

// random draws what one subject is like.
type random struct {
	*rand.Rand
	spread float64
}

// heldOut makes each rate, size and share of a subject 3/4 to 4/3 of what it would be.
var heldOut = math.Log(4.0 / 3)

// vary returns a rate, a size or a share as it is for one subject.
func (r *random) vary(x float64) float64 {
	if r.spread == 0 {
		return x
	}
	return x * math.Exp(r.spread*(2*r.Float64()-1))
}

func between(r *random, low, high float64) float64 { return r.vary(low + r.Float64()*(high-low)) }

// Subject returns the nth subject of the kind, of those by which the shipped policy was chosen.
func (k *Kind) Subject(n int) Actor {
	return k.make(&random{rand.New(rand.NewPCG(seed(k.Name), uint64(n))), 0})
}

// HeldOut returns the nth subject of those by which this policy was not chosen. Its seed follows
// from the policy itself, so a policy that is changed to suit these subjects is judged by others.
// Each rate, size and share is 3/4 to 4/3 of what Subject could draw.
func (k *Kind) HeldOut(policy string, n int) Actor {
	return k.make(&random{rand.New(rand.NewPCG(seed("held out", policy, k.Name), uint64(n))), heldOut})
}

func seed(parts ...string) uint64 {
	h := fnv.New64a()
	for i, part := range parts {
		if i > 0 {
			h.Write([]byte{0})
		}
		h.Write([]byte(part))
	}
	return h.Sum64()
}

// Mix makes a hash of a number.
func Mix(n uint64) uint64 {
	n = (n + 1) * 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
