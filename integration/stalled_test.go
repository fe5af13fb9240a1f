package integration

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/integration/internal/proxy"
	"github.com/oncepipe/oncepipe/integration/internal/servers"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// A server that doesn't answer a commit holds its callers no longer than their
// contexts, and others not at all.
func TestStalledCommitHoldsNobodyElse(t *testing.T) {
	forBackends(t, servedBackends(), func(t *testing.T, b backend) {
		p := b.place(t)
		kind, protocol := servers.Postgres, proxy.Postgres
		if b.dialect == sqlstore.MySQL {
			kind, protocol = servers.MySQL, proxy.MySQL
		}
		o := newOffice(t, b, p)
		between, through := servertest.Proxy(t, kind, p.dsn, 1)
		db, err := sql.Open(p.driver, through)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })  // some of its connections are cut, and say so
		t.Cleanup(func() { between.Close() }) // what still waits ends with its connection
		st, err := sqlstore.Open(t.Context(), db, sqlstore.Config{Dialect: b.dialect})
		if err != nil {
			t.Fatal(err)
		}
		req := newRequest("k")
		if _, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{req}); err != nil {
			t.Fatal(err)
		}
		stall := proxy.Fault{Match: protocol.Commit, When: proxy.After, Action: proxy.Stall, Times: 1}

		between.Set(stall)
		wantTimeout(t, "complete", func(ctx context.Context) error {
			_, err := st.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}})
			return err
		})
		if answers, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{newRequest("other")}); err != nil || answers[0].Status != oncepipe.ClaimAcquired {
			t.Errorf("another claim: %+v, %v", answers, err)
		}
		if held, err := st.Complete(t.Context(), []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}}); err != nil || !held[0] {
			t.Errorf("complete, repeated: %v, %v", held, err)
		}

		between.Set(stall)
		do := sqlstore.TxDo(st, "send", o.send)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(oncepipe.WithKey(t.Context(), "k"), time.Second)
		defer cancel()
		if err := do(ctx, "k"); err != nil { // it has happened, which was looked up
			t.Errorf("transaction: %v", err)
		}
		if gone := time.Since(begun); gone > 10*time.Second {
			t.Errorf("transaction: %v", gone)
		}
		o.wantSent(t, "k")
	})
}

func wantTimeout(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	begun := time.Now()
	if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: %v", what, err)
	}
	if gone := time.Since(begun); gone > 5*time.Second {
		t.Errorf("%s: after %v", what, gone)
	}
}
