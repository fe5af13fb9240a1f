package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// An observer or a source that ends the goroutine it is called in, as t.FailNow
// does, takes nothing with it: all values come to their end, and soon.
func TestI5_GoexitWhileSettling(t *testing.T) {
	const items = 20
	key := func(s string) string { return s }
	values := func(yield func(string) bool) {
		for i := range items {
			if !yield(fmt.Sprint(i)) {
				return
			}
		}
	}
	sources := map[string]func(p *oncepipe.Pipeline, exit func()) oncepipe.Stream[string]{
		"a sequence": func(p *oncepipe.Pipeline, _ func()) oncepipe.Stream[string] {
			return oncepipe.FromSeq(p, "source", values)
		},
		"a channel": func(p *oncepipe.Pipeline, _ func()) oncepipe.Stream[string] {
			ch := make(chan string, items)
			values(func(s string) bool { ch <- s; return true })
			close(ch)
			return oncepipe.FromChan(p, "source", ch)
		},
		"a source with Settle": func(p *oncepipe.Pipeline, exit func()) oncepipe.Stream[string] {
			n := 0
			return oncepipe.From(p, "source", oncepipe.SourceFunc[string](func(context.Context) (oncepipe.Delivery[string], error) {
				if n == items {
					return oncepipe.Delivery[string]{}, io.EOF
				}
				n++
				return oncepipe.Delivery[string]{Value: fmt.Sprint(n - 1), Settle: func(context.Context, oncepipe.Settlement) error {
					exit()
					return nil
				}}, nil
			}))
		},
	}
	sink := func(context.Context, string) error { return nil }
	graphs := map[string]func(in oncepipe.Stream[string], st oncepipe.Store){
		"discarded": func(in oncepipe.Stream[string], _ oncepipe.Store) { oncepipe.Discard(in) },
		"filtered": func(in oncepipe.Stream[string], _ oncepipe.Store) {
			oncepipe.Discard(oncepipe.Filter(in, func(string) bool { return false }))
		},
		"handled": func(in oncepipe.Stream[string], _ oncepipe.Store) { oncepipe.Sink(in, "sink", sink) },
		"behind a store": func(in oncepipe.Stream[string], st oncepipe.Store) {
			oncepipe.Sink(oncepipe.Dedup(in, "dedup", key, oncepipe.WithStore(st)), "sink", sink)
		},
		"known to a store": func(in oncepipe.Stream[string], st oncepipe.Store) {
			id := func(k string) oncepipe.RecordID { return oncepipe.RecordID{Namespace: "p/dedup", Key: k} }
			values(func(k string) bool {
				claim := oncepipe.NewClaimID()
				_, err1 := st.Claim(context.Background(), []oncepipe.ClaimRequest{{RecordID: id(k), Claim: claim, Lease: time.Minute}})
				_, err2 := st.Complete(context.Background(), []oncepipe.Completion{{RecordID: id(k), Claim: claim}})
				return errors.Join(err1, err2) == nil
			})
			oncepipe.Sink(oncepipe.Dedup(in, "dedup", key, oncepipe.WithStore(st)), "sink", sink)
		},
		"failed, by partition": func(in oncepipe.Stream[string], _ oncepipe.Store) {
			in = oncepipe.PartitionBy(in, func(string) string { return "one" })
			ok, failed := oncepipe.TryStage(in, "try", func(_ context.Context, s string) (string, error) {
				time.Sleep(time.Millisecond)
				return s, errors.New("no")
			}, oncepipe.PerPartition(), oncepipe.Workers(4))
			oncepipe.Discard(ok)
			oncepipe.Discard(failed)
		},
	}
	for from, source := range sources {
		for name, graph := range graphs {
			t.Run(from+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var settled, calls atomic.Int32
					exit := func() {
						if calls.Add(1)%3 == 1 {
							runtime.Goexit()
						}
					}
					st := memstore.New(memstore.Config{})
					p := oncepipe.New("p", oncepipe.Config{
						Stores: []oncepipe.Store{st}, Logger: slog.New(slog.DiscardHandler),
						Observers: []oncepipe.Observer{func(e oncepipe.Event) {
							if e.Kind == oncepipe.EventSettled {
								settled.Add(1)
								exit()
							}
						}},
					})
					graph(source(p, exit), st)
					began := time.Now()
					if err := p.Run(t.Context()); err != nil {
						t.Error(err)
					}
					s := p.Stats()
					if s.Admitted != items || s.Done+s.Duplicate+s.Filtered != items || settled.Load() != items {
						t.Errorf("%d observed; %+v", settled.Load(), s)
					}
					if d := time.Since(began); d > 10*time.Second {
						t.Errorf("took %v", d)
					}
				})
			})
		}
	}
}

// A source that ends the goroutine in which copies take over holds up none of
// the others.
func TestGoexitWhileCopiesTakeOver(t *testing.T) {
	ends := func(goexit bool) map[string]time.Duration {
		ended := map[string]time.Duration{}
		synctest.Test(t, func(t *testing.T) {
			const keys = 12
			began := time.Now()
			var mu sync.Mutex
			seen := map[string]bool{}
			filtered, n := 0, 0
			p := oncepipe.New("p", oncepipe.Config{Logger: slog.New(slog.DiscardHandler)})
			in := oncepipe.From(p, "source", oncepipe.SourceFunc[string](func(context.Context) (oncepipe.Delivery[string], error) {
				if n == 2*keys {
					time.Sleep(10 * time.Minute)
					return oncepipe.Delivery[string]{}, io.EOF
				}
				key := fmt.Sprint(n % keys)
				n++
				return oncepipe.Delivery[string]{Value: key, Settle: func(_ context.Context, s oncepipe.Settlement) error {
					mu.Lock()
					again := s.Outcome == oncepipe.Filtered && ended[key] > 0
					if s.Outcome == oncepipe.Filtered {
						filtered++
						ended[key] = time.Since(began).Truncate(time.Second)
					}
					exit := goexit && !again && s.Outcome == oncepipe.Filtered && filtered%4 == 2
					mu.Unlock()
					if exit {
						runtime.Goexit()
					}
					return nil
				}}, nil
			}))
			fresh := oncepipe.Dedup(in, "dedup", func(s string) string { return s })
			first := oncepipe.Filter(fresh, func(s string) bool { // the copies are filtered
				mu.Lock()
				was := seen[s]
				seen[s] = true
				mu.Unlock()
				if was {
					time.Sleep(10 * time.Millisecond) // all have come to take over by then
				}
				return !was
			})
			oncepipe.Sink(first, "sink", func(context.Context, string) error {
				time.Sleep(time.Second)
				return oncepipe.ErrLeaseLost // so that the copy takes over
			}, oncepipe.Workers(keys), oncepipe.Buffer(oncepipe.Fixed(keys)))
			if err := p.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
		return ended
	}
	if with, without := ends(true), ends(false); !maps.Equal(with, without) {
		t.Errorf("copies ended %v\nand without Goexit %v", with, without)
	}
}
