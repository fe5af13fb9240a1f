package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
)

func claims(keys ...string) []oncepipe.ClaimRequest {
	var reqs []oncepipe.ClaimRequest
	for _, key := range keys {
		reqs = append(reqs, oncepipe.ClaimRequest{
			RecordID: oncepipe.RecordID{Namespace: "n", Key: key}, Claim: oncepipe.NewClaimID(), Lease: testLease,
		})
	}
	return reqs
}

func TestCommit_WaitingCallersShareOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, f, closeDB := newFake(t, Config{})
		defer closeDB()
		st.writer <- struct{}{} // somebody writes
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				if _, err := st.Claim(t.Context(), claims(fmt.Sprintf("%02d", 63-i), "b")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		<-st.writer
		wg.Wait()
		if commits, _ := f.counts(); commits != 1 {
			t.Errorf("%d commits", commits)
		}
		if order := f.order(); len(order) != 128 || !slices.IsSorted(order) {
			t.Errorf("not in the order of the keys: %v", order)
		}
	})
}

func TestCommit_IsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, f, closeDB := newFake(t, Config{})
		defer closeDB()
		st.writer <- struct{}{}
		var wg sync.WaitGroup
		batch := claims(make([]string, maxGathered/2)...)
		for i := range batch {
			batch[i].Key = fmt.Sprint(i)
		}
		for range 5 {
			wg.Go(func() {
				if _, err := st.Claim(t.Context(), batch); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		<-st.writer
		wg.Wait()
		if commits, _ := f.counts(); commits != 3 { // two and two and one
			t.Errorf("%d commits", commits)
		}
	})
}

// The caller who leads goes, in the middle: those whom he would have answered
// are answered by another one.
func TestCommit_LeaderGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, f, closeDB := newFake(t, Config{})
		defer closeDB()
		ctx, cancel := context.WithCancel(t.Context())
		first := true
		f.exec = func(ctx context.Context, _ string, _ []driver.NamedValue) (int64, error) {
			if first {
				first = false
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 1, nil
		}
		st.writer <- struct{}{}
		results := make([]error, 3)
		var wg sync.WaitGroup
		for i, ctx := range []context.Context{ctx, t.Context(), t.Context()} {
			wg.Go(func() { _, results[i] = st.Claim(ctx, claims(fmt.Sprint(i))) })
			synctest.Wait() // waiters get the writer's place in their order
		}
		<-st.writer
		synctest.Wait()
		cancel()
		wg.Wait()
		if !errors.Is(results[0], context.Canceled) || results[1] != nil || results[2] != nil {
			t.Errorf("results %v", results)
		}
		if commits, undone := f.counts(); commits != 1 || undone != 1 {
			t.Errorf("%d commits, %d undone", commits, undone)
		}
	})
}

func TestCommit_WhoLeavesTheQueueWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, f, closeDB := newFake(t, Config{})
		defer closeDB()
		st.writer <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := st.Claim(ctx, claims("left")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		<-st.writer
		if _, err := st.Claim(t.Context(), claims("next")); err != nil {
			t.Error(err)
		}
		if order := f.order(); !slices.Equal(order, []string{"next"}) {
			t.Errorf("written: %v", order)
		}
	})
}

// A caller who goes may use his bytes again, although somebody is writing them.
func TestCommit_BytesAreCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, f, closeDB := newFake(t, Config{})
		defer closeDB()
		blocked := make(chan struct{})
		var written []string
		f.exec = func(_ context.Context, _ string, args []driver.NamedValue) (int64, error) {
			if keyOf(args) == "0" {
				<-blocked
				return 1, nil
			}
			for _, a := range args {
				if b, ok := a.Value.([]byte); ok {
					written = append(written, string(b))
				}
			}
			return 1, nil
		}
		st.writer <- struct{}{}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := st.Claim(t.Context(), claims("0")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			result := []byte("result")
			_, err := st.Complete(ctx, []oncepipe.Completion{{
				RecordID: oncepipe.RecordID{Namespace: "n", Key: "1"}, Result: result, HasResult: true,
			}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			clear(result)
		})
		synctest.Wait()
		<-st.writer
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(blocked)
		wg.Wait()
		if !slices.Contains(written, "result") {
			t.Errorf("written: %q", written)
		}
	})
}

func TestCommit_OnesFaultIsNotAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, f, closeDB := newFake(t, Config{})
		defer closeDB()
		boom := errors.New("boom")
		f.exec = func(_ context.Context, _ string, args []driver.NamedValue) (int64, error) {
			if keyOf(args) == "1" {
				return 0, boom
			}
			return 1, nil
		}
		st.writer <- struct{}{}
		results := make([]error, 3)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() { _, results[i] = st.Claim(t.Context(), claims(fmt.Sprint(i))) })
		}
		synctest.Wait()
		<-st.writer
		wg.Wait()
		if results[0] != nil || !errors.Is(results[1], boom) || results[2] != nil {
			t.Errorf("results %v", results)
		}
		if commits, undone := f.counts(); commits != 2 || undone != 2 {
			t.Errorf("%d commits, %d undone", commits, undone)
		}
	})
}

func TestBusy_IsTriedAgainByCode(t *testing.T) {
	for _, c := range []struct {
		err   error
		times int
		want  error
	}{
		{err: codedError(5), times: 20},
		{err: codedError(517), times: 3},                           // SQLITE_BUSY_SNAPSHOT
		{err: fmt.Errorf("insert: %w", codedError(261)), times: 3}, // SQLITE_BUSY_RECOVERY
		{err: codedError(262), times: 3},                           // SQLITE_LOCKED_SHAREDCACHE
		{err: codedError(5), times: 1_000_000, want: codedError(5)},
		{err: codedError(13), times: 1, want: codedError(13)},
		{err: codedError(2067), times: 1, want: codedError(2067)},
		{err: errPlain, times: 1, want: errPlain},
	} {
		t.Run(fmt.Sprint(c.err, c.times), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st, f, closeDB := newFake(t, Config{BusyTimeout: 5 * time.Second})
				defer closeDB()
				n := 0
				f.exec = func(context.Context, string, []driver.NamedValue) (int64, error) {
					if n++; n <= c.times {
						return 0, c.err
					}
					return 1, nil
				}
				begun := time.Now()
				_, err := st.Claim(t.Context(), claims("k"))
				if !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				if d := time.Since(begun); c.times > 1000 && (d < 5*time.Second || d > 5*time.Second+2*maxPause) {
					t.Errorf("gave up after %v", d)
				}
				if c.times == 1 && n != 1 {
					t.Errorf("tried %d times", n)
				}
			})
		})
	}
}

var errPlain = errors.New("database is locked (5) (SQLITE_BUSY)") // a text is no code

func TestBusy_EndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, f, closeDB := newFake(t, Config{})
		defer closeDB()
		f.exec = func(context.Context, string, []driver.NamedValue) (int64, error) { return 0, codedError(5) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := st.Claim(ctx, claims("k")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if d := time.Since(begun); d != time.Second {
			t.Errorf("after %v", d)
		}
	})
}

// A transaction of Tx waits for its turn, and no longer than its context.
func TestTx_WaitsForTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, f, closeDB := newFake(t, Config{})
		defer closeDB()
		do := TxDo(st, "step", func(context.Context, *sql.Tx, int) error { return nil })
		st.writer <- struct{}{}
		ctx, cancel := context.WithTimeout(oncepipe.WithKey(t.Context(), "k"), time.Second)
		defer cancel()
		if err := do(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if commits, undone := f.counts(); commits+undone != 0 {
			t.Errorf("%d commits, %d undone", commits, undone)
		}
		<-st.writer
		if err := do(oncepipe.WithKey(t.Context(), "k"), 0); err != nil {
			t.Error(err)
		}
	})
}

// R52: a record that is there for the insertion and gone for the reading, again
// and again, is an outage in the end, never an acquisition.
func TestR52_RecordThatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, f, closeDB := newFake(t, Config{})
		defer closeDB()
		f.exec = func(context.Context, string, []driver.NamedValue) (int64, error) { return 0, nil }
		if answers, err := st.Claim(t.Context(), claims("k")); !errors.Is(err, errVanishing) || answers != nil {
			t.Errorf("claim: %v, %v", answers, err)
		}
		do := TxDo(st, "step", func(context.Context, *sql.Tx, int) error { t.Error("run"); return nil })
		if err := do(oncepipe.WithKey(t.Context(), "k"), 0); !errors.Is(err, errVanishing) {
			t.Errorf("transaction: %v", err)
		}
	})
}
