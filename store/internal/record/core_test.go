package record_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	for _, oneWriter := range []bool{true, false} {
		t.Run(fmt.Sprint("oneWriter=", oneWriter), func(t *testing.T) {
			oncetest.Store(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
				synctest.Test(t, func(t *testing.T) {
					check(t, oncetest.StoreEnv{
						Store: newStore(newFakeDB(), oneWriter), Advance: time.Sleep, Retention: retention, MaxResult: 1000,
					})
				})
			})
		})
	}
}

// two is a process of its own for each call, on one database.
type two struct {
	oncepipe.Store
	other oncepipe.Store
	mu    sync.Mutex
	calls int
}

func (s *two) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	s.mu.Lock()
	s.calls++
	st := s.Store
	if s.calls%2 == 0 {
		st = s.other
	}
	s.mu.Unlock()
	return st.Claim(ctx, reqs)
}

func TestContract_OfTwoProcesses(t *testing.T) {
	oncetest.StoreRaces(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
		synctest.Test(t, func(t *testing.T) {
			d := newFakeDB()
			st := &two{Store: newStore(d, false), other: newStore(d, false)}
			check(t, oncetest.StoreEnv{Store: st, Advance: time.Sleep, Retention: retention, MaxResult: 1000})
		})
	})
}

// A look at records that are there costs no transaction.
func TestCore_LooksTakeNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDB()
		st := newStore(d, false)
		reqs := claims("claimed", "completed")
		if _, err := st.Claim(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Complete(t.Context(), []oncepipe.Completion{{RecordID: reqs[1].RecordID, Claim: reqs[1].Claim}}); err != nil {
			t.Fatal(err)
		}
		d.begin = func(context.Context) error { t.Error("a transaction"); return nil }
		answers, err := st.Claim(t.Context(), claims("claimed", "completed", "new"))
		if err != nil || answers[0].Status != oncepipe.ClaimBusy || answers[1].Status != oncepipe.ClaimCompleted || answers[2].Status != oncepipe.ClaimAcquired {
			t.Errorf("%+v, %v", answers, err)
		}
	})
}
