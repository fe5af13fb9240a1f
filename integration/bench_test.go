package integration

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// bare writes n effects, each in a transaction of its own, without a store.
func bare(b *testing.B, db *sql.DB, stmt *sql.Stmt, first, n int) time.Duration {
	ctx, cancel := context.WithCancel(context.Background()) // as handlers have them
	defer cancel()
	begun := time.Now()
	for i := range n {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := tx.StmtContext(ctx, stmt).ExecContext(ctx, fmt.Sprintf("k%09d", first+i)); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begun)
}

// BenchmarkPrice is the rate of TxDo in relation to that of bare transactions, in
// rounds that take turns: the median of the ratios.
func BenchmarkPrice(b *testing.B) {
	for _, sync := range []string{"FULL", "NORMAL"} { // NORMAL: no fsync for a commit, only CPU counts
		b.Run("synchronous="+sync, func(b *testing.B) {
			db := openDB(b, dsnSync(newFile(b), sync), 1)
			l := newLedger(b, db, sqlstore.Config{})
			stmt, err := db.Prepare("INSERT INTO ledger (k) VALUES (?)")
			if err != nil {
				b.Fatal(err)
			}
			defer stmt.Close()
			do := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
				_, err := tx.StmtContext(ctx, stmt).ExecContext(ctx, key)
				return err
			})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			const n = 200
			var ratios, own, theirs []float64
			first := 0
			for b.Loop() {
				without := bare(b, db, stmt, first, n)
				begun := time.Now()
				for i := range n {
					key := fmt.Sprintf("k%09d", first+i)
					if err := do(oncepipe.WithKey(ctx, key), key); err != nil {
						b.Fatal(err)
					}
				}
				with := time.Since(begun)
				first += n
				ratios = append(ratios, without.Seconds()/with.Seconds())
				own, theirs = append(own, n/with.Seconds()), append(theirs, n/without.Seconds())
			}
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(median(own), "TxDo/s")
			b.ReportMetric(median(theirs), "bare/s")
		})
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// BenchmarkStore is the store's own work, by one caller and by many.
func BenchmarkStore(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("claim+complete/callers=%d", callers), func(b *testing.B) {
			st := openStore(b, openDB(b, dsnSync(newFile(b), "FULL"), 0), sqlstore.Config{})
			b.SetParallelism(max(callers/2, 1))
			next := counter()
			work := func() {
				req := newRequest(fmt.Sprintf("k%09d", next()))
				answers, err := st.Claim(context.Background(), []oncepipe.ClaimRequest{req})
				if err != nil || answers[0].Status != oncepipe.ClaimAcquired {
					b.Error(answers, err)
				}
				held, err := st.Complete(context.Background(), []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}})
				if err != nil || !held[0] {
					b.Error(held, err)
				}
			}
			run(b, callers, work)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
		})
	}
	b.Run("claims in batches of 256", func(b *testing.B) {
		st := openStore(b, openDB(b, dsnSync(newFile(b), "FULL"), 0), sqlstore.Config{})
		next := counter()
		for b.Loop() {
			reqs := make([]oncepipe.ClaimRequest, 256)
			for i := range reqs {
				reqs[i] = newRequest(fmt.Sprintf("k%09d", next()))
			}
			if _, err := st.Claim(context.Background(), reqs); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(256*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
	})
	b.Run("duplicates", func(b *testing.B) {
		l := newLedger(b, openDB(b, dsnSync(newFile(b), "FULL"), 0), sqlstore.Config{})
		do := sqlstore.TxDo(l.Store, "book", book)
		ctx := oncepipe.WithKey(context.Background(), "k")
		for b.Loop() {
			if err := do(ctx, "k"); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
	})
}

// run calls work b.N times from callers goroutines.
func run(b *testing.B, callers int, work func()) {
	if callers == 1 {
		for range b.N {
			work()
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			work()
		}
	})
}

func counter() func() int64 {
	var n atomic.Int64
	return func() int64 { return n.Add(1) }
}

// BenchmarkPrune is the longest that a claim waits while half a million records
// are pruned beside it.
func BenchmarkPrune(b *testing.B) {
	for b.Loop() {
		db := openDB(b, dsnSync(newFile(b), "FULL"), 0)
		advance := newClock(b, db)
		st := openStore(b, db, sqlstore.Config{Clock: testClock})
		const records = 500_000
		mustExec(b, db, `INSERT INTO oncepipe_records (ns, k, state, claim, fence, attempt, takeovers, took_over, expires_at, has_result)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000)
			SELECT CAST('old' AS BLOB), CAST(printf('k%09d', i) AS BLOB), 3, randomblob(16), 1, 1, 0, 0, 0, 0 FROM n`)
		advance(time.Hour)
		done := make(chan error)
		go func() {
			n, err := st.Prune(context.Background(), 2*records)
			if err == nil && n != records {
				err = fmt.Errorf("pruned %d", n)
			}
			done <- err
		}()
		var waits []float64
		for next := counter(); ; {
			select {
			case err := <-done:
				if err != nil {
					b.Fatal(err)
				}
			default:
				begun := time.Now()
				if _, err := st.Claim(context.Background(), []oncepipe.ClaimRequest{newRequest(fmt.Sprintf("k%09d", next()))}); err != nil {
					b.Fatal(err)
				}
				waits = append(waits, float64(time.Since(begun).Microseconds())/1000)
				continue
			}
			break
		}
		slices.Sort(waits)
		b.ReportMetric(waits[len(waits)-1], "ms-longest")
		b.ReportMetric(waits[len(waits)*99/100], "ms-p99")
		b.ReportMetric(float64(len(waits)), "claims")
	}
}
