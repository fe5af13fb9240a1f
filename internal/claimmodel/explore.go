package claimmodel

import "math"

// Result is what an exploration has found.
type Result struct {
	States   int      // that were visited: all that can be reached, unless Violated
	Steps    int      // between them
	Depth    int      // of the state that is farthest from the start
	Violated Property // 0: every property that was looked for holds
	Trace    []string // the steps of a shortest way to the state that violates it
}

// Explore visits every state that can be reached, nearest first, and stops at
// the first that violates a property.
func Explore(cfg Config) Result {
	x := explorer{cfg: cfg, index: map[world]int32{}}
	x.add(cfg.start(), -1)
	steps := 0
	for at := 0; at < len(x.worlds); at++ {
		if v := cfg.violated(x.worlds[at]); v != 0 {
			return x.result(steps, v, at)
		}
		cfg.next(x.worlds[at], func(s step, w world) {
			steps++
			to := x.add(w, int32(at))
			if !s.fault && cfg.Check&NoDeadEnd != 0 {
				x.good = append(x.good, edge{int32(at), to})
			}
		})
	}
	if cfg.Check&NoDeadEnd != 0 {
		if at := x.deadEnd(); at >= 0 {
			return x.result(steps, NoDeadEnd, at)
		}
	}
	return x.result(steps, 0, len(x.worlds)-1)
}

// explorer knows the worlds that were found, in the order in which they were.
type explorer struct {
	cfg    Config
	worlds []world
	parent []int32 // of each world: the one from which it was found
	index  map[world]int32
	good   []edge // the steps without a fault
}

type edge struct{ from, to int32 }

// add returns the number of a world.
func (x *explorer) add(w world, from int32) int32 {
	w, _ = w.canonical()
	if n, ok := x.index[w]; ok {
		return n
	}
	if len(x.worlds) == math.MaxInt32 {
		panic("claimmodel: too many states")
	}
	n := int32(len(x.worlds))
	x.index[w] = n
	x.worlds = append(x.worlds, w)
	x.parent = append(x.parent, from)
	return n
}

// deadEnd returns the nearest world from which no way without a fault leads to
// the end, or -1. It goes from the ends backwards.
func (x *explorer) deadEnd() int {
	first := make([]int32, len(x.worlds)+1) // in before: where those of each world begin
	for _, e := range x.good {
		first[e.to+1]++
	}
	for i := range x.worlds {
		first[i+1] += first[i]
	}
	before := make([]int32, len(x.good))
	fill := append([]int32(nil), first...)
	for _, e := range x.good {
		before[fill[e.to]] = e.from
		fill[e.to]++
	}
	alive := make([]bool, len(x.worlds))
	var open []int32
	mark := func(n int32) {
		if !alive[n] {
			alive[n] = true
			open = append(open, n)
		}
	}
	for n, w := range x.worlds {
		if x.cfg.finished(w) {
			mark(int32(n))
		}
	}
	for len(open) > 0 {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		for _, from := range before[first[n]:first[n+1]] {
			mark(from)
		}
	}
	for n := range alive {
		if !alive[n] {
			return n
		}
	}
	return -1
}

// result describes the way to the world with number at, which is one of the
// shortest.
func (x *explorer) result(steps int, violated Property, at int) Result {
	var path []int32
	for n := int32(at); n >= 0; n = x.parent[n] {
		path = append(path, n)
	}
	r := Result{States: len(x.worlds), Steps: steps, Depth: len(path) - 1, Violated: violated}
	if violated != 0 {
		r.Trace = x.trace(path)
	}
	return r
}
