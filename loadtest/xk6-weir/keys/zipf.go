package keys

import (
	"math"
	"math/rand/v2"
)

// zipf draws ranks from 0 to n-1 in proportion to 1/(rank+1)^s, for any s ≥ 0, without a
// table: rejection-inversion (W. Hörmann, G. Derflinger, 1996).
type zipf struct {
	random  *rand.Rand
	n, s    float64
	hx1, hn float64
	cut     float64
}

func newZipf(random *rand.Rand, n int64, s float64) *zipf {
	z := &zipf{random: random, n: float64(n), s: s}
	z.hx1, z.hn = z.integral(1.5)-1, z.integral(z.n+0.5)
	z.cut = 2 - z.inverse(z.integral(2.5)-math.Pow(2, -s))
	return z
}

// integral of x^-s, written so that s = 1 is not a special case.
func (z *zipf) integral(x float64) float64 {
	log := math.Log(x)
	return expm1Over((1-z.s)*log) * log
}

func (z *zipf) inverse(x float64) float64 {
	t := max(-1, x*(1-z.s))
	return math.Exp(log1pOver(t) * x)
}

func (z *zipf) next() int64 {
	for {
		u := z.hn + z.random.Float64()*(z.hx1-z.hn)
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.n)
		if k-x <= z.cut || u >= z.integral(k+0.5)-math.Pow(k, -z.s) {
			return int64(k) - 1
		}
	}
}

// expm1Over is (e^x - 1)/x, also near 0.
func expm1Over(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Expm1(x) / x
	}
	return 1 + x/2*(1+x/3)
}

// log1pOver is ln(1+x)/x, also near 0.
func log1pOver(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Log1p(x) / x
	}
	return 1 - x*(0.5-x/3)
}
