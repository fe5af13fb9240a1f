package record_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

func write(_ context.Context, tx *fakeTx, v string) (string, error) {
	tx.write(v)
	return "result of " + v, nil
}

// batchOf makes a TxBatch function of one for an item.
func batchOf(st store, cfg oncepipe.TxConfig[string, string], fn func(context.Context, *fakeTx, string) (string, error)) func(context.Context, []string) ([]string, error) {
	return record.TxBatchFunc(st.Core, "step", cfg, func(ctx context.Context, tx *fakeTx, vs []string) (out []string, err error) {
		for _, v := range vs {
			b, err := fn(ctx, tx, v)
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
		return out, nil
	})
}

func keyed(t *testing.T, keys ...string) context.Context {
	return oncepipe.WithKeys(t.Context(), keys...)
}

func TestTxBatch_OnlyFreshItemsReachTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDB()
		st := newStore(d, true)
		var seen [][]string
		do := record.TxBatchFunc(st.Core, "step", oncepipe.TxConfig[string, string]{},
			func(_ context.Context, tx *fakeTx, vs []string) ([]string, error) {
				seen = append(seen, slices.Clone(vs))
				for _, v := range vs {
					tx.write(v)
				}
				return vs, nil
			})
		for _, batch := range [][]string{{"c", "a"}, {"a", "b", "c", "b", "d"}, {"d", "d"}} {
			got, err := do(keyed(t, batch...), batch)
			if err != nil || !slices.Equal(got, batch) {
				t.Errorf("%v: %v, %v", batch, got, err)
			}
		}
		if fmt.Sprint(seen) != "[[a c] [b d]]" || fmt.Sprint(d.effects) != "[a c b d]" {
			t.Errorf("seen %v, effects %v", seen, d.effects)
		}
	})
}

// A poison item stands alone in the end, and nothing of its transactions is there.
func TestTxBatch_Bisects(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newFakeDB()
			st := newStore(d, rapid.Bool().Draw(rt, "one writer"))
			n := rapid.IntRange(1, 20).Draw(rt, "n")
			boom := errors.New("boom")
			blames := rapid.Bool().Draw(rt, "blames")
			var keys, want []string
			poison := map[string]bool{}
			for i := range n {
				key := fmt.Sprintf("k%02d", i)
				keys = append(keys, key)
				if poison[key] = rapid.IntRange(0, 3).Draw(rt, "poison") == 0; !poison[key] {
					want = append(want, key)
				}
			}
			do := record.TxBatchFunc(st.Core, "step", oncepipe.TxConfig[string, string]{},
				func(_ context.Context, tx *fakeTx, vs []string) ([]string, error) {
					errs := make([]error, len(vs))
					failed := false
					for i, v := range vs {
						tx.write(v)
						if poison[v] {
							errs[i], failed = fmt.Errorf("%s: %w", v, boom), true
						}
					}
					switch {
					case failed && blames:
						return nil, &oncepipe.BatchError{Errs: errs}
					case failed:
						return nil, boom
					}
					return vs, nil
				})
			got, err := do(keyed(t, keys...), keys)
			var each *oncepipe.BatchError
			if (err != nil) != (len(want) < n) || err != nil && (!errors.As(err, &each) || len(each.Errs) != n) {
				rt.Fatalf("error %v", err)
			}
			for i, key := range keys {
				switch {
				case poison[key] && !errors.Is(each.Errs[i], boom):
					rt.Errorf("%s: %v", key, each.Errs[i])
				case !poison[key] && (got[i] != key || each != nil && each.Errs[i] != nil):
					rt.Errorf("%s: %q, %v", key, got[i], err)
				}
			}
			effects := slices.Clone(d.effects)
			slices.Sort(effects)
			if !slices.Equal(effects, want) || len(d.rows) != len(want) {
				rt.Errorf("effects %v, want %v; %d records", effects, want, len(d.rows))
			}
		})
	})
}

// Whatever a commit says, an effect is there once in the end, and never without
// its record.
func TestTx_CommitsThatLie(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared=", shared), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				synctest.Test(t, func(t *testing.T) { lyingCommits(t, rt, shared) })
			})
		})
	}
}

func lyingCommits(t *testing.T, rt *rapid.T, shared bool) {
	d := newFakeDB()
	faults := rapid.SliceOfN(rapid.IntRange(0, 5), 30, 30).Draw(rt, "faults")
	lost := errors.New("connection lost")
	d.commit = func() (before, after error) {
		if len(faults) == 0 {
			return nil, nil
		}
		f := faults[0]
		faults = faults[1:]
		return [...]error{nil, nil, errAgain, lost, nil, nil}[f], [...]error{nil, nil, nil, nil, errAgain, lost}[f]
	}
	st := newStore(d, !shared)
	cfg := oncepipe.TxConfig[string, string]{Shared: shared}
	do := record.TxFunc(st.Core, "step", cfg, write)
	batch := batchOf(st, cfg, write)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for n := range 4 {
				key := fmt.Sprint("k", (n+worker)%4)
				for {
					if worker == 0 {
						if got, err := batch(keyed(t, key, "kb"), []string{key, "kb"}); err == nil {
							if got[0] != "result of "+key {
								rt.Errorf("%s: %q", key, got)
							}
							break
						}
						continue
					}
					if got, err := do(oncepipe.WithKey(t.Context(), key), key); err == nil {
						if got != "result of "+key {
							rt.Errorf("%s: %q", key, got)
						}
						break
					}
				}
			}
		})
	}
	wg.Wait()
	effects := slices.Clone(d.effects)
	slices.Sort(effects)
	if want := []string{"k0", "k1", "k2", "k3", "kb"}; !slices.Equal(effects, want) || len(d.rows) != len(want) {
		rt.Errorf("effects %v; %d records", effects, len(d.rows))
	}
}

// whileBusy calls f for every n at once, while a transaction is under way.
func whileBusy(t *testing.T, d *fakeDB, st store, n int, f func(i int)) {
	t.Helper()
	gate := make(chan struct{})
	d.begin = func(context.Context) error { <-gate; return nil }
	first := record.TxFunc(st.Core, "first", oncepipe.TxConfig[string, string]{Shared: true}, write)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := first(oncepipe.WithKey(t.Context(), "first"), "first"); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	for i := range n {
		wg.Go(func() { f(i) })
	}
	synctest.Wait()
	close(gate)
	wg.Wait()
}

func TestShared_CallersShareOneTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDB()
		st := newStore(d, true)
		do := record.TxFunc(st.Core, "step", oncepipe.TxConfig[string, string]{Shared: true}, write)
		whileBusy(t, d, st, 64, func(i int) {
			key := fmt.Sprint("k", i/2) // each key twice
			if got, err := do(oncepipe.WithKey(t.Context(), key), key); err != nil || got != "result of "+key {
				t.Errorf("%s: %q, %v", key, got, err)
			}
		})
		if commits, undone := d.counts(); commits != 2 || undone != 0 || len(d.effects) != 33 {
			t.Errorf("%d commits, %d undone, %d effects", commits, undone, len(d.effects))
		}
	})
}

// One whose function fails, panics or ends its goroutine is not another's trouble.
func TestShared_OnesFaultIsNotAnothers(t *testing.T) {
	boom := errors.New("boom")
	for name, fault := range map[string]func() error{
		"error":  func() error { return boom },
		"panic":  func() error { panic(boom) },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newFakeDB()
				st := newStore(d, true)
				do := record.TxFunc(st.Core, "step", oncepipe.TxConfig[string, string]{Shared: true},
					func(ctx context.Context, tx *fakeTx, v string) (string, error) {
						tx.write(v)
						if v == "k5" {
							return "", fault()
						}
						return v, ctx.Err()
					})
				whileBusy(t, d, st, 10, func(i int) {
					key := fmt.Sprint("k", i)
					panicked := true
					defer func() {
						if r := recover(); panicked != (key == "k5" && name != "error") || r != nil && r != boom {
							t.Errorf("%s: panic %v", key, r)
						}
					}()
					_, err := do(oncepipe.WithKey(t.Context(), key), key)
					panicked = false
					if (err != nil) != (key == "k5") || err != nil && !errors.Is(err, boom) {
						t.Errorf("%s: %v", key, err)
					}
				})
				if slices.Contains(d.effects, "k5") || len(d.effects) != 10 {
					t.Errorf("effects %v", d.effects)
				}
			})
		})
	}
}

// Each function has the values and the end of its own caller's context.
func TestShared_ContextsAreTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type name struct{}
		d := newFakeDB()
		st := newStore(d, true)
		do := record.TxFunc(st.Core, "step", oncepipe.TxConfig[string, string]{Shared: true},
			func(ctx context.Context, _ *fakeTx, v string) (string, error) {
				if _, err := st.Lookup(ctx, nil); !errors.Is(err, oncepipe.ErrInTx) {
					t.Errorf("a call from within: %v", err)
				}
				return ctx.Value(name{}).(string), nil
			})
		whileBusy(t, d, st, 8, func(i int) {
			key := fmt.Sprint("k", i)
			ctx := context.WithValue(oncepipe.WithKey(t.Context(), key), name{}, key)
			if got, err := do(ctx, key); err != nil || got != key {
				t.Errorf("%s: %q, %v", key, got, err)
			}
		})
	})
}

func TestShared_FingerprintsOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDB()
		st := newStore(d, true)
		cfg := oncepipe.TxConfig[string, string]{Shared: true, Fingerprint: func(v string) string { return v }}
		do := record.TxFunc(st.Core, "step", cfg, write)
		var mu sync.Mutex
		errs := map[bool]int{}
		whileBusy(t, d, st, 2, func(i int) {
			_, err := do(oncepipe.WithKey(t.Context(), "k"), fmt.Sprint("payload ", i))
			mu.Lock()
			defer mu.Unlock()
			errs[errors.Is(err, oncepipe.ErrMismatch)]++
		})
		if errs[true] != 1 || errs[false] != 1 {
			t.Errorf("mismatches %v", errs)
		}
	})
}

// A transaction waits for its turn, and no longer than its context.
func TestTx_WaitsForTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, d, free := busy(t)
		do := record.TxFunc(st.Core, "step", oncepipe.TxConfig[string, string]{}, write)
		ctx, cancel := context.WithTimeout(oncepipe.WithKey(t.Context(), "k"), time.Second)
		defer cancel()
		if _, err := do(ctx, "v"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		free()
		if len(d.effects) != 0 {
			t.Errorf("effects %v", d.effects)
		}
		if _, err := do(oncepipe.WithKey(t.Context(), "k"), "v"); err != nil {
			t.Error(err)
		}
	})
}

// R52: a record that is there for the insertion and gone for the reading, again
// and again, is an outage in the end, never an acquisition.
func TestR52_RecordThatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDB()
		ghost := ghostDB{d}
		core := record.NewCore[*fakeTx](ghost, record.Config{Name: "ghost", Rules: record.Rules{Retention: retention}, Busy: time.Second})
		do := record.TxFunc(core, "step", oncepipe.TxConfig[string, string]{}, func(context.Context, *fakeTx, string) (string, error) {
			t.Error("run")
			return "", nil
		})
		if _, err := do(oncepipe.WithKey(t.Context(), "k"), "v"); err == nil || !strings.Contains(err.Error(), "comes and goes") {
			t.Errorf("error %v", err)
		}
	})
}

// ghostDB inserts nothing and finds nothing.
type ghostDB struct{ *fakeDB }

func (d ghostDB) TransactWith(ctx context.Context, _ []record.Record, f func(record.Tx[*fakeTx], []record.ID) error) error {
	return d.fakeDB.TransactWith(ctx, nil, f)
}

// What is said of the whole batch is not looked for in its parts.
func TestTxBatch_HeedsMarks(t *testing.T) {
	boom := errors.New("boom")
	for name, fault := range map[string]error{
		"whole": oncepipe.WholeBatch(boom), "snooze": oncepipe.Snooze(time.Second),
		"retry after": oncepipe.RetryAfter(time.Second, boom), "lease": oncepipe.ErrLeaseLost,
	} {
		calls := 0
		do := record.TxBatchFunc(newStore(newFakeDB(), true).Core, "step", oncepipe.TxConfig[string, string]{},
			func(context.Context, *fakeTx, []string) ([]string, error) { calls++; return nil, fault })
		keys := []string{"a", "b", "c", "d"}
		_, err := do(keyed(t, keys...), keys)
		var each *oncepipe.BatchError
		if !errors.As(err, &each) || slices.Contains(each.Errs, nil) || calls != 1 {
			t.Errorf("%s: %d calls, %v", name, calls, err)
		}
	}
}

// A poison item that only the commit refuses stands alone in the end, too.
func TestTxBatch_BisectsWhatTheCommitRefuses(t *testing.T) {
	d := newFakeDB()
	d.commit = func() (before, after error) {
		if slices.Contains(d.effects, "bad") {
			return errRefused, nil
		}
		return nil, nil
	}
	keys := []string{"a", "b", "bad", "c"}
	_, err := batchOf(newStore(d, true), oncepipe.TxConfig[string, string]{}, write)(keyed(t, keys...), keys)
	var each *oncepipe.BatchError
	if !errors.As(err, &each) {
		t.Fatal(err)
	}
	for i, err := range each.Errs {
		if (err != nil) != (keys[i] == "bad") {
			t.Errorf("%s: %v", keys[i], err)
		}
	}
	if fmt.Sprint(d.effects) != "[a b c]" {
		t.Errorf("effects %v", d.effects)
	}
}

type unencodable struct{}

func (unencodable) MarshalJSON() ([]byte, error) { panic("no json") }

// A done effect doesn't fail for its result, and a replay has none.
func TestTx_ResultThatPanics(t *testing.T) {
	d := newFakeDB()
	do := record.TxFunc(newStore(d, true).Core, "step", oncepipe.TxConfig[string, unencodable]{},
		func(_ context.Context, tx *fakeTx, v string) (unencodable, error) {
			tx.write(v)
			return unencodable{}, nil
		})
	ctx := oncepipe.WithKey(t.Context(), "k")
	if _, err := do(ctx, "k"); err != nil || len(d.effects) != 1 {
		t.Errorf("%v, effects %v", err, d.effects)
	}
	if _, err := do(ctx, "k"); !errors.Is(err, oncepipe.ErrNoResult) || len(d.effects) != 1 {
		t.Errorf("again: %v, effects %v", err, d.effects)
	}
}

// An error names the step that it is about, whoever made the transaction.
func TestShared_ErrorsNameTheirStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDB()
		st := newStore(d, true)
		claimed := claims("x")
		claimed[0].RecordID = oncepipe.RecordID{Namespace: "step1", Key: "k"}
		if _, err := st.Claim(t.Context(), claimed); err != nil {
			t.Fatal(err)
		}
		whileBusy(t, d, st, 2, func(i int) {
			step := fmt.Sprint("step", i)
			do := record.TxFunc(st.Core, step, oncepipe.TxConfig[string, string]{Shared: true}, write)
			_, err := do(oncepipe.WithKey(t.Context(), "k"), "k")
			if (err != nil) != (i == 1) || err != nil && !strings.Contains(err.Error(), step) {
				t.Errorf("%s: %v", step, err)
			}
		})
	})
}

// A caller who has gone before his function's turn has no effect.
func TestShared_NobodyRunsForWhoHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDB()
		st := newStore(d, true)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		waited := false
		do := record.TxFunc(st.Core, "step", oncepipe.TxConfig[string, string]{Shared: true},
			func(_ context.Context, tx *fakeTx, v string) (string, error) {
				if v == "a" && !waited { // its turn comes before that of the one who goes
					waited = true
					cancel()
					<-left
				}
				tx.write(v)
				return v, nil
			})
		whileBusy(t, d, st, 2, func(i int) {
			key := []string{"a", "z"}[i]
			if i == 0 {
				if _, err := do(oncepipe.WithKey(t.Context(), key), key); err != nil {
					t.Error(err)
				}
				return
			}
			if _, err := do(oncepipe.WithKey(ctx, key), key); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			close(left)
		})
		if fmt.Sprint(d.effects) != "[first a]" {
			t.Errorf("effects %v", d.effects)
		}
	})
}
