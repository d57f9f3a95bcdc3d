// Package corpus simulates the clients, benign and hostile, that behavior policies are tested
// on. Tests run them in virtual time; k6 sends their requests to real edges.
package corpus

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
)

// random draws one subject's properties.
type random struct {
	*rand.Rand
	spread float64
}

// heldOut scales each rate, size and share of a subject by 3/4 to 4/3.
var heldOut = math.Log(4.0 / 3)

// vary scales a rate, a size or a share for one subject.
func (r *random) vary(x float64) float64 {
	if r.spread == 0 {
		return x
	}
	return x * math.Exp(r.spread*(2*r.Float64()-1))
}

func between(r *random, low, high float64) float64 { return r.vary(low + r.Float64()*(high-low)) }

// Subject returns the kind's nth subject of the set that the shipped policy was tuned on.
func (k *Kind) Subject(n int) Actor {
	return k.make(&random{rand.New(rand.NewPCG(seed(k.Name), uint64(n))), 0})
}

// HeldOut returns the nth subject of a set that this policy was not tuned on. The seed follows
// from the policy, so a change that suits these subjects gets different ones. Each rate, size
// and share is 3/4 to 4/3 of what Subject could draw.
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

// Mix hashes a number.
func Mix(n uint64) uint64 {
	n = (n + 1) * 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
