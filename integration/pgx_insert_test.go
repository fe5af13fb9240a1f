package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/store/pgxstore"
)

// motley returns claims that have little in common with their neighbours.
func motley(n int) []oncepipe.ClaimRequest {
	reqs := make([]oncepipe.ClaimRequest, n)
	for i := range reqs {
		reqs[i] = oncepipe.ClaimRequest{
			RecordID: oncepipe.RecordID{Namespace: fmt.Sprint("ns", i%3), Key: fmt.Sprint("k", i)}, Claim: oncepipe.NewClaimID(),
			Lease: time.Duration(1+i%2) * time.Hour, Owner: fmt.Sprint("owner", i/4%2), Fingerprint: fmt.Sprint("f", i),
		}
	}
	return reqs
}

// Of claims in one call every one gets what is its own, whatever they share, and
// the ones that are known are told from those that are new.
func TestPgx_ClaimsOfAllKindsInOneCall(t *testing.T) {
	for _, mode := range pgxModes {
		t.Run(mode, func(t *testing.T) {
			ctx := t.Context()
			dsn := withParam(t, servertest.PostgresSchema(t), "default_query_exec_mode", mode)
			st := pgxStore(t, pgxPool(t, dsn, 2), pgxstore.Config{})
			reqs := motley(40)
			var known []oncepipe.ClaimRequest
			for i := 0; i < len(reqs); i += 5 {
				other := reqs[i]
				other.Claim = oncepipe.NewClaimID()
				known = append(known, other)
			}
			claimAll(t, st, known)
			for range 2 { // a repeated claim is answered as the first one was
				answers, err := st.Claim(ctx, reqs)
				if err != nil {
					t.Fatal(err)
				}
				for i, a := range answers {
					want := oncepipe.ClaimAcquired
					if i%5 == 0 {
						want = oncepipe.ClaimBusy
					}
					if a.Status != want || a.Fence != 1 {
						t.Errorf("claim %d: %+v, want %v", i, a, want)
					}
				}
			}
			ids := make([]oncepipe.RecordID, len(reqs))
			for i, req := range reqs {
				ids[i] = req.RecordID
			}
			recs, err := st.Lookup(ctx, ids)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range recs {
				early := reqs[i].Lease - r.Lease
				r.Lease = 0
				want := oncepipe.Record{
					RecordID: ids[i], State: oncepipe.StateClaimed, Fence: 1, Attempt: 1,
					Owner: reqs[i].Owner, Fingerprint: reqs[i].Fingerprint,
				}
				if fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) || early < -time.Second || early > 10*time.Minute {
					t.Errorf("%+v, and a lease shorter by %v, want %+v", r, early, want)
				}
			}
		})
	}
}

// Claims and completions of many callers meet in one transaction, in which some
// of the keys are known.
func TestPgx_ClaimsAndCompletionsAtOnce(t *testing.T) {
	ctx := t.Context()
	st := pgxStore(t, pgxPool(t, servertest.PostgresSchema(t), 4), pgxstore.Config{})
	reqs := motley(40)
	var wg sync.WaitGroup
	for i := range reqs {
		for range 2 { // the second one is known
			req := reqs[i : i+1]
			wg.Go(func() {
				_, claimErr := st.Claim(ctx, req)
				held, err := st.Complete(ctx, []oncepipe.Completion{{RecordID: req[0].RecordID, Claim: req[0].Claim, Result: []byte("r"), HasResult: true}})
				if claimErr != nil || err != nil || !held[0] {
					t.Errorf("%v: %v, %v, %v", req[0].RecordID, claimErr, held, err)
				}
			})
		}
	}
	wg.Wait()
	for _, req := range reqs {
		recs, err := st.Lookup(ctx, []oncepipe.RecordID{req.RecordID})
		if err != nil || recs[0].State != oncepipe.StateCompleted || recs[0].Fence != 1 || recs[0].Attempt != 1 || string(recs[0].Result) != "r" {
			t.Errorf("%+v, %v", recs, err)
		}
	}
}

// A batch in which some keys are known acts for the others.
func TestPgxTx_BatchOfKnownAndNew(t *testing.T) {
	l := simplePgxLedger(t)
	runs := 0
	book := pgxstore.TxBatchDoWith(l.Store, "book", oncepipe.TxConfig[string, struct{}]{
		Fingerprint: func(key string) string { return key },
	}, func(ctx context.Context, tx pgx.Tx, keys []string) error {
		runs++
		for _, key := range keys {
			if err := bookPgx(ctx, tx, key); err != nil {
				return err
			}
		}
		return nil
	})
	var keys []string
	for i := range 10 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	for _, batch := range [][]string{keys[3:5], keys, keys} {
		if err := book(oncepipe.WithKeys(t.Context(), batch...), batch); err != nil {
			t.Fatal(err)
		}
	}
	if runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
	for i, key := range keys {
		l.check(t, key, 1, oncepipe.StateCompleted)
		recs, err := l.Lookup(t.Context(), []oncepipe.RecordID{{Namespace: "book", Key: key}})
		if err != nil || recs[0].Fingerprint != keys[i] {
			t.Errorf("%+v, %v", recs, err)
		}
	}
}
