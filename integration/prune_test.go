package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// overdue completes n keys whose retention is over at once.
func overdue(t testing.TB, st oncepipe.Store, n int) {
	t.Helper()
	const part = 1000
	for first := 0; first < n; first += part {
		var reqs []oncepipe.ClaimRequest
		var done []oncepipe.Completion
		for i := range min(part, n-first) {
			req := newRequest(fmt.Sprintf("old%07d", first+i))
			reqs = append(reqs, req)
			done = append(done, oncepipe.Completion{RecordID: req.RecordID, Claim: req.Claim})
		}
		if _, err := st.Claim(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Complete(t.Context(), done); err != nil {
			t.Fatal(err)
		}
	}
}

// Claims go on while records are pruned, and no claim waits for all of it.
func TestR65_PruneBesideClaims(t *testing.T) {
	forBackends(t, backends, func(t *testing.T, b backend) {
		const old = 20_000
		p := b.place(t)
		advance := p.clocked(t)
		st := openStore(t, p.open(t, 0), sqlstore.Config{Dialect: b.dialect, Retention: time.Hour, Clock: testClock})
		overdue(t, st, old)
		advance(2 * time.Hour)
		pruned := make(chan int)
		begun := time.Now()
		go func() {
			n, err := st.Prune(t.Context(), 2*old)
			if err != nil {
				t.Error(err)
			}
			pruned <- n
		}()
		var longest time.Duration
		claims := 0
		for {
			select {
			case n := <-pruned:
				took := time.Since(begun)
				t.Logf("%d pruned in %v beside %d claims, the longest %v", n, took, claims, longest)
				if n != old {
					t.Errorf("pruned %d of %d", n, old)
				}
				if claims < 3 {
					t.Errorf("%d claims, the longest %v of %v", claims, longest, took)
				}
				return
			default:
			}
			at := time.Now()
			answers, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{newRequest(fmt.Sprint("new", claims))})
			if err != nil || answers[0].Status != oncepipe.ClaimAcquired {
				t.Fatalf("%+v, %v", answers, err)
			}
			longest = max(longest, time.Since(at))
			claims++
		}
	})
}

// A record that somebody has locked is left for the next time, and holds nothing up.
func TestR65_PruneSkipsWhatIsLocked(t *testing.T) {
	forBackends(t, servedBackends(), func(t *testing.T, b backend) {
		p := b.place(t)
		db := p.open(t, 0)
		advance := p.clocked(t)
		st := openStore(t, db, sqlstore.Config{Dialect: b.dialect, Retention: time.Hour, Clock: testClock})
		overdue(t, st, 10)
		advance(2 * time.Hour)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		var state int
		if err := tx.QueryRow("SELECT state FROM oncepipe_records WHERE ns = 'step' AND k = 'old0000003' FOR UPDATE").Scan(&state); err != nil {
			t.Fatal(err)
		}
		if n, err := st.Prune(t.Context(), 100); n != 9 || err != nil {
			t.Errorf("pruned %d, %v", n, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if n, err := st.Prune(t.Context(), 100); n != 1 || err != nil {
			t.Errorf("then %d, %v", n, err)
		}
	})
}
