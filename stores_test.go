package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// batchStore notes how large the batches of its requests were.
type batchStore struct {
	oncepipe.Store
	mu      sync.Mutex
	batches map[string][]int
}

func newBatchStore(st oncepipe.Store) *batchStore {
	return &batchStore{Store: st, batches: map[string][]int{}}
}

func (s *batchStore) note(op string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches[op] = append(s.batches[op], n)
}

func (s *batchStore) sizes(op string) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.batches[op]...)
}

func (s *batchStore) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	s.note("claim", len(reqs))
	return s.Store.Claim(ctx, reqs)
}

func (s *batchStore) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	s.note("extend", len(reqs))
	return s.Store.Extend(ctx, reqs)
}

func (s *batchStore) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	s.note("complete", len(reqs))
	return s.Store.Complete(ctx, reqs)
}

func (s *batchStore) Prune(ctx context.Context, limit int) (int, error) {
	n, err := s.Store.Prune(ctx, limit)
	s.note("prune", n)
	return n, err
}

// caredFor lets the rig's pipeline care for stores.
func caredFor(stores ...oncepipe.Store) func(*oncepipe.Config) {
	return func(c *oncepipe.Config) { c.Stores = stores }
}

func storeStats(t *testing.T, p *oncepipe.Pipeline, i int) oncepipe.StoreStats {
	t.Helper()
	st := p.Stats().Stores
	if i >= len(st) {
		t.Fatalf("%d stores in Stats", len(st))
	}
	return st[i]
}

// limitedBroker says for how long it delivers again.
type limitedBroker struct {
	*broker
	redelivery time.Duration
}

func (b limitedBroker) MaxRedelivery() time.Duration { return b.redelivery }

// A store that forgets a key before its source does is refused, with all that is
// wrong in one error; who knows better is warned.
func TestR64_RetentionShorterThanRedelivery(t *testing.T) {
	hour := memstore.New(memstore.Config{Retention: time.Hour})
	day := memstore.New(memstore.Config{Retention: 24 * time.Hour})
	week := memstore.New(memstore.Config{})
	build := func(allow bool, log *brokerLog) *oncepipe.Pipeline {
		p := oncepipe.New("p", oncepipe.Config{
			Stores: []oncepipe.Store{hour, day, week}, AllowShortRetention: allow, Logger: textLogger(log),
		})
		for i, redelivery := range []time.Duration{24 * time.Hour, 30 * time.Minute, 0} {
			b := newBroker()
			b.end()
			oncepipe.Discard(oncepipe.From(p, fmt.Sprint("source ", i), limitedBroker{b, redelivery}))
		}
		return p
	}
	err := build(false, &brokerLog{}).Run(t.Context())
	if err == nil || strings.Count(err.Error(), "forgets") != 2 || strings.Count(err.Error(), "source 0") != 2 {
		t.Errorf("got %v, want the stores with an hour and with a day refused for source 0", err)
	}
	var log brokerLog
	if err := build(true, &log).Run(t.Context()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 2 {
		t.Errorf("%d warnings, want 2:\n%s", n, &log)
	}
}

func TestStoresThatCantBeCaredFor(t *testing.T) {
	type byValue struct {
		oncepipe.Store
		_ []int
	}
	st := memstore.New(memstore.Config{})
	p := oncepipe.New("p", oncepipe.Config{Stores: []oncepipe.Store{nil, byValue{Store: st}, st, st}})
	oncepipe.Discard(oncepipe.FromChan(p, "in", make(chan int)))
	err := p.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nil") || !strings.Contains(err.Error(), "byValue") {
		t.Errorf("got %v", err)
	}
}

// fill completes n keys.
func fill(t *testing.T, st oncepipe.Store, name string, n int, complete bool) {
	t.Helper()
	claims := make([]oncepipe.ClaimRequest, n)
	done := make([]oncepipe.Completion, n)
	for i := range n {
		id := oncepipe.RecordID{Namespace: name, Key: strconv.Itoa(i)}
		claims[i] = oncepipe.ClaimRequest{RecordID: id, Claim: oncepipe.NewClaimID(), Lease: 1000 * time.Hour}
		done[i] = oncepipe.Completion{RecordID: id, Claim: claims[i].Claim}
	}
	if _, err := st.Claim(t.Context(), claims); err != nil {
		t.Fatal(err)
	}
	if !complete {
		return
	}
	if _, err := st.Complete(t.Context(), done); err != nil {
		t.Fatal(err)
	}
}

// idlePipeline runs until the test says so.
func idlePipeline(t *testing.T, cfg oncepipe.Config) (p *oncepipe.Pipeline, end func() error) {
	p = oncepipe.New("idle", cfg)
	oncepipe.Discard(oncepipe.FromChan(p, "in", make(chan int)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return p, func() error { cancel(); return <-ended }
}

// What is over goes, portion by portion, and none of it before the grace period
// is: rows that may not go, more than a portion of them, hold none up.
func TestR66_R32_PrunedToTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(memstore.Config{Retention: time.Hour})
		st := newBatchStore(mem)
		fill(t, mem, "live", 1500, false)
		fill(t, mem, "done", 4500, true)
		time.Sleep(2 * time.Hour)
		p, end := idlePipeline(t, oncepipe.Config{Stores: []oncepipe.Store{st}, PruneGrace: 5 * time.Minute})
		time.Sleep(5*time.Minute - 1)
		if n := mem.Len(); n != 6000 {
			t.Errorf("%d records before the grace period is over", n)
		}
		time.Sleep(time.Second)
		if n := mem.Len(); n != 1500 {
			t.Errorf("%d records, want the live ones", n)
		}
		for _, n := range st.sizes("prune") {
			if n > 1000 {
				t.Errorf("a portion of %d", n)
			}
		}
		// And again.
		fill(t, mem, "later", 10, true)
		time.Sleep(time.Hour + 12*time.Minute)
		if n := mem.Len(); n != 1500 {
			t.Errorf("%d records, want the live ones", n)
		}
		if s := storeStats(t, p, 0); s.Pruned != 4510 || s.PruneErrors != 0 || s.Name != "*oncepipe_test.batchStore" {
			t.Errorf("%+v", s)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

func TestR66_NotWhereSomebodyElsePrunes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newBatchStore(memstore.New(memstore.Config{}))
		_, end := idlePipeline(t, oncepipe.Config{Stores: []oncepipe.Store{st}, PruneEvery: -1})
		time.Sleep(24 * time.Hour)
		if len(st.sizes("prune")) > 0 {
			t.Error("pruned")
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// pruneStore lets the test say what Prune does.
type pruneStore struct {
	oncepipe.Store
	prune func(ctx context.Context) (int, error)
}

func (s *pruneStore) Prune(ctx context.Context, _ int) (int, error) { return s.prune(ctx) }

// A store that can't be pruned is asked again, and there is one warning for it,
// not one for each time.
func TestPruneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log brokerLog
		calls, left := 0, 3
		up := time.Now().Add(time.Hour)
		st := &pruneStore{Store: memstore.New(memstore.Config{}), prune: func(context.Context) (int, error) {
			calls++
			switch {
			case calls == 2:
				panic("in the driver")
			case time.Now().Before(up):
				return 0, errLine
			case left > 0:
				left--
				return 1, nil
			}
			return 0, nil
		}}
		p, end := idlePipeline(t, oncepipe.Config{Stores: []oncepipe.Store{st}, Logger: textLogger(&log)})
		time.Sleep(time.Hour + time.Minute)
		if s := storeStats(t, p, 0); s.Pruned != 3 || s.PruneErrors < 60 {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings, want 1:\n%s", n, &log)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// Run's end ends a pruning under way; one that can't be ended is named.
func TestR88_PruneEndsWithRun(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			st := &pruneStore{Store: memstore.New(memstore.Config{}), prune: func(ctx context.Context) (int, error) {
				if deaf {
					<-release
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}}
			var log brokerLog
			_, end := idlePipeline(t, oncepipe.Config{Stores: []oncepipe.Store{st}, Logger: textLogger(&log)})
			time.Sleep(90 * time.Second)
			began := time.Now()
			err := end()
			var abandoned *oncepipe.AbandonedError
			if errors.As(err, &abandoned) != deaf || !deaf && err != nil {
				t.Errorf("got %v", err)
			}
			if d := time.Since(began); d > time.Second {
				t.Errorf("Run took %v to end", d)
			}
			close(release)
		})
	}
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
