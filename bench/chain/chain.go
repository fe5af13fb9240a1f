// Package chain compares pipelines of Oncepipe with what one would write by
// hand on bare channels: the same items through the same functions.
package chain

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/bench/internal/ratio"
)

// buffer is the size of every channel.
const buffer = 64

// order is the item: its key comes with it, as from a broker.
type order struct {
	id string
	n  int
}

func id(o order) string { return o.id }

func work(_ context.Context, o order) (order, error) {
	o.n++
	return o, nil
}

func plain(o order) order {
	o.n++
	return o
}

// ids are made beforehand, so that making them is not measured; they are few, so
// that the collector's work is that for the pipelines.
var ids = func() (ids [1024]string) {
	for i := range ids {
		ids[i] = "order-" + strconv.Itoa(i)
	}
	return ids
}()

func orders(n int) iter.Seq[order] {
	return func(yield func(order) bool) {
		for i := range n {
			if !yield(order{id: ids[i%len(ids)]}) {
				return
			}
		}
	}
}

// raw is a chain of stages on bare channels, between a goroutine that makes the
// items and one that counts them.
func raw(items int, stages, workers int) {
	in := make(chan order, buffer)
	go func(first chan<- order) {
		defer close(first)
		for o := range orders(items) {
			first <- o
		}
	}(in)
	ctx := context.Background()
	for range stages {
		out := make(chan order, buffer)
		from := in
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for o := range from {
					if o, err := work(ctx, o); err == nil {
						out <- o
					}
				}
			})
		}
		go func() {
			wg.Wait()
			close(out)
		}()
		in = out
	}
	n := 0
	for range in {
		n++
	}
	if n != items {
		panic(fmt.Sprintf("%d of %d", n, items))
	}
}

// pipeline is the same with keys, settlement and retry. The source is the
// goroutine that makes the items; settling them, behind the last stage, is what
// counts them.
func pipeline(items int, maps, stages, workers int) {
	p := oncepipe.New("bench", oncepipe.Config{})
	run(p, oncepipe.KeyBy(oncepipe.FromSeq(p, "orders", orders(items)), id), items, maps, stages, workers)
}

// acked is a pipeline of three stages whose source has to hear of each item.
func acked(items, workers int) {
	var acks atomic.Int64
	made := 0
	settle := func(context.Context, oncepipe.Settlement) error {
		acks.Add(1)
		return nil
	}
	p := oncepipe.New("bench", oncepipe.Config{})
	in := oncepipe.From(p, "orders", oncepipe.SourceFunc[order](func(context.Context) (oncepipe.Delivery[order], error) {
		if made == items {
			return oncepipe.Delivery[order]{}, io.EOF
		}
		o := order{id: ids[made%len(ids)]}
		made++
		return oncepipe.Delivery[order]{Value: o, Key: o.id, Settle: settle}, nil
	}))
	run(p, in, items, 0, 3, workers)
	if n := acks.Load(); n != int64(items) {
		panic(fmt.Sprintf("%d of %d acked", n, items))
	}
}

func run(p *oncepipe.Pipeline, s oncepipe.Stream[order], items, maps, stages, workers int) {
	for range maps {
		s = oncepipe.Map(s, plain)
	}
	for i := range stages {
		s = oncepipe.Stage(s, "stage"+strconv.Itoa(i), work,
			oncepipe.Workers(workers),
			oncepipe.Buffer(oncepipe.Fixed(buffer)),
			oncepipe.Retry(oncepipe.RetryPolicy{MaxAttempts: 8}))
	}
	oncepipe.Discard(s)
	if err := p.Run(context.Background()); err != nil {
		panic(err)
	}
	if st := p.Stats(); st.Done != int64(items) || !st.Conserved() {
		panic(fmt.Sprintf("%+v", st))
	}
}

// blob yields any number of distinct keys without making them: its substrings.
var blob = func() string {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = 'a' + byte(random.IntN(26))
	}
	return string(b)
}()

const keyLen = 36

func key(n int) string { return blob[n : n+keyLen] }

// deduplicated is a source and, if guarded, a Dedup behind it, all of whose keys are
// new: the difference is what it costs to begin a key and to be done with it.
func deduplicated(items int, guarded bool) {
	p := oncepipe.New("bench", oncepipe.Config{})
	s := oncepipe.FromSeq(p, "numbers", func(yield func(int) bool) {
		for i := range items {
			if !yield(i) {
				return
			}
		}
	})
	if guarded {
		s = oncepipe.Dedup(s, "dedup", key)
	}
	oncepipe.Discard(s)
	if err := p.Run(context.Background()); err != nil {
		panic(err)
	}
	if st := p.Stats(); st.Done != int64(items) {
		panic(fmt.Sprintf("%+v", st))
	}
}

// Report measures the ratios that README.md promises.
func Report() ([]ratio.Row, error) {
	const items, rounds = 200_000, 15
	t := ratio.Rounds(rounds,
		func() { raw(items, 3, 1) },
		func() { pipeline(items, 0, 3, 1) },
		func() { raw(items, 3, 4) },
		func() { pipeline(items, 0, 3, 4) },
		func() { pipeline(items, 3, 1, 1) },
		func() { pipeline(items, 0, 1, 1) },
		func() { deduplicated(items, true) },
		func() { deduplicated(items, false) },
		func() { acked(items, 1) },
	)
	raw1, once1, raw4, once4, inline, single := t[0], t[1], t[2], t[3], t[4], t[5]
	const hops = 4 // of raw
	return []ratio.Row{
		ratio.AtMost("chain3/1 worker", once1.Over(raw1), 1.7),
		ratio.AtMost("chain3/4 workers", once4.Over(raw4), 2.1),
		ratio.AtMost("chain3/acked", t[8].Over(raw1), 2.5),
		ratio.AtMost("inline over raw chain3", inline.Over(raw1), 1.0),
		ratio.AtMost("inline over chain1", inline.Over(single), 1.15),
		ratio.AtMost("dedup begin+done, raw hops", t[6].Minus(t[7]).Over(raw1)*hops, 3),
	}, nil
}
