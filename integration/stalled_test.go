package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
		gone, err := leave(t, t.Context(), between, func(ctx context.Context) error {
			_, err := st.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}})
			return err
		})
		if !errors.Is(err, context.Canceled) || gone > 5*time.Second {
			t.Errorf("complete: %v, after %v", err, gone)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if answers, err := st.Claim(ctx, []oncepipe.ClaimRequest{newRequest("other")}); err != nil || answers[0].Status != oncepipe.ClaimAcquired {
			t.Errorf("another claim: %+v, %v", answers, err)
		}
		if held, err := st.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}}); err != nil || !held[0] {
			t.Errorf("complete, repeated: %v, %v", held, err)
		}

		between.Set(stall)
		do := sqlstore.TxDo(st, "send", o.send)
		gone, err = leave(t, oncepipe.WithKey(t.Context(), "k"), between, func(ctx context.Context) error { return do(ctx, "k") })
		if err != nil || gone > 10*time.Second { // it has happened, which was looked up
			t.Errorf("transaction: %v, after %v", err, gone)
		}
		o.wantSent(t, "k")
	})
}

// leave ends the context of a call when the reply to its commit is held, and
// says how much later the call has ended.
func leave(t *testing.T, ctx context.Context, p *proxy.Proxy, call func(context.Context) error) (gone time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	held := p.Counts().After.Stall
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	eventually(t, time.Minute, func() error {
		if n := p.Counts().After.Stall - held; n != 1 {
			return fmt.Errorf("%d replies held", n)
		}
		return nil
	})
	begun := time.Now()
	cancel()
	err = <-ended
	return time.Since(begun), err
}
