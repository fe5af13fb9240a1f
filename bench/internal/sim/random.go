package sim

import "math/rand/v2"

// What a random number is for. Each is drawn from the seed and from what it is
// about, never from a stream that several read, whose order could differ.
const (
	forArrivals uint64 = iota + 1
	forKeys
	forService
	forFailure
	forAck
)

// random returns the numbers of one purpose, for one of the things named by id.
func (c *Cell) random(purpose uint64, id ...uint64) *rand.Rand {
	mixed := purpose
	for _, x := range id {
		mixed = mix(mixed ^ mix(x))
	}
	return rand.New(rand.NewPCG(c.Seed, mixed))
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// keyDrawer returns the number of each message's key.
func keyDrawer(c Cell) func(message int) uint64 {
	if c.Skew == 0 {
		return func(i int) uint64 { return uint64(i) }
	}
	zipf := rand.NewZipf(c.random(forKeys), c.Skew, 1, uint64(c.SkewKeys-1))
	return func(int) uint64 { return zipf.Uint64() }
}
