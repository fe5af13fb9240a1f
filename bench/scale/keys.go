package main

import (
	"context"
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/oncepipe/oncepipe"
)

const (
	keyLength   = 36 // of a UUID's text
	bytesPerKey = 25 // of a Ring, about
	reads       = 1_000_000
)

// letters yields distinct keys without making them: its substrings.
type letters string

func newLetters(keys int) letters {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, keys+keyLength)
	for i := range b {
		b[i] = 'a' + byte(random.IntN(26))
	}
	return letters(b)
}

func (l letters) key(i int) string { return string(l[i : i+keyLength]) }

// supply is two times n keys in turn, and a guard that is full of those it was given
// last: it has forgotten the others, as it has no room for more than n.
type supply struct {
	letters letters
	n       int
	guard   oncepipe.Guard // nil: none
	second  bool
}

// next are the numbers of the n keys that are not the last ones.
func (s *supply) next() iter.Seq[int] {
	first := 0
	if s.second {
		first = s.n
	}
	s.second = !s.second
	return func(yield func(int) bool) {
		for i := first; i < first+s.n; i++ {
			if !yield(i) {
				return
			}
		}
	}
}

// fill makes the guard and returns the memory that it takes.
func (s *supply) fill(capacity int) (took float64) {
	before := memory()
	s.guard = oncepipe.Ring(capacity)
	s.add()
	return memory() - before
}

// add makes the next keys known, as Dedup does it, and returns how many were known.
func (s *supply) add() (known int) {
	for i := range s.next() {
		key := s.letters.key(i)
		if s.guard.Lookup(key, "") != oncepipe.GuardMiss {
			known++
		}
		s.guard.Add(key, "")
	}
	return known
}

func keys(s sizes) plan {
	var p plan
	text := newLetters(2 * s.keys[len(s.keys)-1])
	for _, n := range s.keys {
		bare, fixed, growing := &supply{letters: text, n: n}, &supply{letters: text, n: n}, &supply{letters: text, n: n}
		p.once = append(p.once,
			func(*meter) error { fixed.fill(s.guard); return nil },
			func(m *meter) error { m.note("keys/bytes", n, growing.fill(n)/float64(n)); return nil },
		)
		p.rounds = append(p.rounds,
			func(m *meter) error { return bare.timed(m, "keys/stage", s.fewest, bare.through) },
			func(m *meter) error { return fixed.timed(m, "keys/default", s.fewest, fixed.through) },
			func(m *meter) error { return growing.timed(m, "keys/all", s.fewest, growing.through) },
			func(m *meter) error { return growing.timed(m, "keys/ring", s.fewest, growing.alone) },
			func(m *meter) error { m.note("keys/read", n, randomRead(n)); return nil },
		)
	}
	return p
}

// timed notes the time of a key in several passes, each of which takes the next
// ones: as many as it takes to see fewest keys.
func (s *supply) timed(m *meter, series string, fewest int, pass func() error) error {
	passes := (fewest + s.n - 1) / s.n
	start := time.Now()
	for range passes {
		if err := pass(); err != nil {
			return err
		}
	}
	m.note(series, s.n, each(time.Since(start), passes*s.n))
	return nil
}

// alone gives the next keys to the guard alone.
func (s *supply) alone() error {
	if known := s.add(); known > 0 {
		return fmt.Errorf("the guard knows %d keys that are new", known)
	}
	return nil
}

// through sends the next keys through a pipeline. Without a guard it has no
// Dedup.
func (s *supply) through() error {
	p := oncepipe.New("keys", oncepipe.Config{})
	numbers := oncepipe.FromSeq(p, "numbers", s.next())
	if s.guard != nil {
		numbers = oncepipe.Dedup(numbers, "dedup", s.letters.key, oncepipe.WithGuard(s.guard))
	}
	oncepipe.Sink(numbers, "work", func(context.Context, int) error { return nil },
		oncepipe.Buffer(oncepipe.Fixed(buffer)), oncepipe.Retry(oncepipe.RetryPolicy{}))
	return finish(p, s.n)
}

// finish runs p, all of whose n items must be done.
func finish(p *oncepipe.Pipeline, n int) error {
	if err := p.Run(context.Background()); err != nil {
		return err
	}
	if st := p.Stats(); st.Done != int64(n) || !st.Conserved() {
		return fmt.Errorf("of %d items: %+v", n, st)
	}
	return nil
}

// randomRead is the time of a read somewhere in the memory of a Ring of n keys, in
// nanoseconds. The place depends on what was read before.
func randomRead(n int) float64 {
	words := make([]uint64, max(1, n*bytesPerKey/8))
	for i := range words {
		words[i] = 1 // or its page would not be there
	}
	at := uint64(1)
	start := time.Now()
	for range reads {
		i, _ := bits.Mul64(at, uint64(len(words)))
		at = at*6364136223846793005 + words[i]
	}
	took := time.Since(start)
	runtime.KeepAlive(at)
	return each(took, reads)
}
