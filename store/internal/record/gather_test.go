package record_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

func claims(keys ...string) []oncepipe.ClaimRequest {
	var reqs []oncepipe.ClaimRequest
	for _, key := range keys {
		reqs = append(reqs, oncepipe.ClaimRequest{
			RecordID: oncepipe.RecordID{Namespace: "n", Key: key}, Claim: oncepipe.NewClaimID(), Lease: 30 * time.Second,
		})
	}
	return reqs
}

// busy is a store whose first commit waits until free is called; calls that come
// meanwhile wait behind it.
func busy(t *testing.T) (st store, d *fakeDB, free func()) {
	d = newFakeDB()
	st = newStore(d, true)
	gate := make(chan struct{})
	d.introduce = func(ctx context.Context, recs []record.Record) error {
		if recs[0].Key == "first" {
			<-gate
		}
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := st.Claim(t.Context(), claims("first")); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return st, d, func() {
		close(gate)
		wg.Wait()
	}
}

func TestGather_WaitingCallersShareOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, d, free := busy(t)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				if _, err := st.Claim(t.Context(), claims(fmt.Sprintf("%02d", 63-i), "b")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		free()
		wg.Wait()
		if commits, _ := d.counts(); commits != 2 {
			t.Errorf("%d commits", commits)
		}
		if order := d.introduced()[1:]; len(order) != 65 || !slices.IsSorted(order) {
			t.Errorf("not in the order of the keys: %v", order)
		}
	})
}

func TestGather_CommitsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, d, free := busy(t)
		var wg sync.WaitGroup
		for n := range 5 {
			var keys []string
			for i := range 512 {
				keys = append(keys, fmt.Sprint(n, "-", i))
			}
			wg.Go(func() {
				if _, err := st.Claim(t.Context(), claims(keys...)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		free()
		wg.Wait()
		if commits, _ := d.counts(); commits != 4 { // the first, two and two and one
			t.Errorf("%d commits", commits)
		}
	})
}

// The caller who began a commit goes, in the middle. It goes on for the others,
// and is not made a second time for them.
func TestGather_LeaderGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, d, free := busy(t)
		ctx, cancel := context.WithCancel(t.Context())
		gate := make(chan struct{})
		blocked := d.introduce
		d.introduce = func(ctx context.Context, recs []record.Record) error {
			if len(recs) == 3 {
				select {
				case <-gate:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return blocked(ctx, recs)
		}
		results := make([]error, 3)
		left := make(chan struct{})
		var wg sync.WaitGroup
		for i, ctx := range []context.Context{ctx, t.Context(), t.Context()} {
			wg.Go(func() {
				_, results[i] = st.Claim(ctx, claims(fmt.Sprint(i)))
				if i == 0 {
					close(left)
				}
			})
			synctest.Wait() // waiters get the writer's place in their order
		}
		free()
		synctest.Wait()
		cancel()
		<-left
		close(gate)
		wg.Wait()
		if !errors.Is(results[0], context.Canceled) || results[1] != nil || results[2] != nil {
			t.Errorf("results %v", results)
		}
		if commits, _ := d.counts(); commits != 2 {
			t.Errorf("%d commits", commits)
		}
	})
}

// With its last caller a commit ends, and he waits for that.
func TestGather_AllGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, d, free := busy(t)
		ctx, cancel := context.WithCancel(t.Context())
		running := 0
		d.introduce = func(ctx context.Context, recs []record.Record) error {
			running++
			<-ctx.Done()
			time.Sleep(time.Second) // the driver closes a connection
			running--
			return ctx.Err()
		}
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				if _, err := st.Claim(ctx, claims(fmt.Sprint(i))); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		free()
		synctest.Wait()
		if running != 1 {
			t.Fatalf("%d commits run", running)
		}
		cancel()
		wg.Wait()
		if running != 0 {
			t.Error("the commit outlives its callers")
		}
		d.introduce = nil
		if _, err := st.Claim(t.Context(), claims("next")); err != nil {
			t.Error(err)
		}
	})
}

// A panic below is everybody's error, and the writer's token is not lost.
func TestGather_Panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDB()
		st := newStore(d, true)
		d.introduce = func(context.Context, []record.Record) error { panic("in the driver") }
		if _, err := st.Claim(t.Context(), claims("k")); err == nil || !strings.Contains(err.Error(), "in the driver") {
			t.Errorf("error %v", err)
		}
		d.introduce = nil
		if _, err := st.Claim(t.Context(), claims("k")); err != nil {
			t.Error(err)
		}
	})
}

// Of a connection that is lost nobody knows what happened: nothing is made again.
func TestGather_LostConnectionIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, d, free := busy(t)
		lost := errors.New("connection lost")
		tries := 0
		blocked := d.introduce
		d.introduce = func(ctx context.Context, recs []record.Record) error {
			if recs[0].Key != "first" {
				tries++
				return lost
			}
			return blocked(ctx, recs)
		}
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				if _, err := st.Claim(t.Context(), claims(fmt.Sprint(i))); !errors.Is(err, lost) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		free()
		wg.Wait()
		if tries != 1 {
			t.Errorf("%d tries", tries)
		}
	})
}

func TestGather_WhoLeavesTheQueueWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, d, free := busy(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := st.Claim(ctx, claims("left")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		free()
		if _, err := st.Claim(t.Context(), claims("next")); err != nil {
			t.Error(err)
		}
		if order := d.introduced(); !slices.Equal(order, []string{"first", "next"}) {
			t.Errorf("written: %v", order)
		}
	})
}

func TestGather_OnesFaultIsNotAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, d, free := busy(t)
		boom := fmt.Errorf("boom: %w", errRefused)
		blocked := d.introduce
		d.introduce = func(ctx context.Context, recs []record.Record) error {
			if slices.ContainsFunc(recs, func(r record.Record) bool { return r.Key == "1" }) {
				return boom
			}
			return blocked(ctx, recs)
		}
		results := make([]error, 3)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() { _, results[i] = st.Claim(t.Context(), claims(fmt.Sprint(i))) })
		}
		synctest.Wait()
		free()
		wg.Wait()
		if results[0] != nil || !errors.Is(results[1], boom) || results[2] != nil {
			t.Errorf("results %v", results)
		}
	})
}

// A caller who goes may use his bytes again, although somebody is writing them.
func TestGather_BytesAreCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDB()
		st := newStore(d, true)
		req := claims("k")[0]
		if _, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{req}); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		d.begin = func(context.Context) error { <-gate; return nil }
		other := oncepipe.RecordID{Namespace: "n", Key: "other"}
		var wg sync.WaitGroup
		wg.Go(func() { // leads
			if _, err := st.Forget(t.Context(), []oncepipe.RecordID{other}, false); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() { // leads next, for the one who goes
			if _, err := st.Forget(t.Context(), []oncepipe.RecordID{other}, false); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		begun := make(chan struct{})
		go func() {
			defer close(left)
			result := []byte("result")
			_, err := st.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim, Result: result, HasResult: true}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			clear(result)
		}()
		synctest.Wait()
		d.begin = func(context.Context) error { close(begun); <-left; return nil }
		gate <- struct{}{} // the first commit goes on, the second has the completion in it
		<-begun
		cancel()
		wg.Wait()
		recs, err := st.Lookup(t.Context(), []oncepipe.RecordID{req.RecordID})
		if err != nil || string(recs[0].Result) != "result" {
			t.Errorf("%+v, %v", recs, err)
		}
	})
}

func TestR56_MetTransactionsAreTriedAgain(t *testing.T) {
	plain := errors.New("try again") // a text is no code
	for _, c := range []struct {
		err   error
		times int
		want  error
	}{
		{err: errAgain, times: 20},
		{err: fmt.Errorf("insert: %w", errAgain), times: 3},
		{err: errAgain, times: 1_000_000, want: errAgain},
		{err: plain, times: 1, want: plain},
	} {
		t.Run(fmt.Sprint(c.err, c.times), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newFakeDB()
				n := 0
				d.introduce = func(context.Context, []record.Record) error {
					if n++; n <= c.times {
						return c.err
					}
					return nil
				}
				begun := time.Now()
				_, err := newStore(d, true).Claim(t.Context(), claims("k"))
				if !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				if gone := time.Since(begun); c.times > 1000 && (gone < 10*time.Second || gone > 10*time.Second+20*time.Millisecond) {
					t.Errorf("gave up after %v", gone)
				}
				if c.times == 1 && n != 1 {
					t.Errorf("tried %d times", n)
				}
			})
		})
	}
}

func TestGather_TryingAgainEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDB()
		d.introduce = func(context.Context, []record.Record) error { return errAgain }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := newStore(d, true).Claim(ctx, claims("k")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if gone := time.Since(begun); gone != time.Second {
			t.Errorf("after %v", gone)
		}
	})
}

// One caller of a refused commit is answered, the next one alone meets a database
// that hangs, and goes: his commit ends with him and gives the writer's token back.
func TestGather_LastOfTheLonelyGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, d, free := busy(t)
		blocked := d.introduce
		d.introduce = func(ctx context.Context, recs []record.Record) error {
			switch {
			case len(recs) == 2:
				return errRefused
			case recs[0].Key == "b":
				<-ctx.Done()
				return ctx.Err()
			}
			return blocked(ctx, recs)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := st.Claim(t.Context(), claims("a")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := st.Claim(ctx, claims("b")); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		synctest.Wait()
		free()
		wg.Wait()
		if _, err := st.Claim(t.Context(), claims("c")); err != nil {
			t.Error(err)
		}
	})
}
