package integration

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// crashFile tells a process that it is the one to be killed, and on which file.
const crashFile = "ONCEPIPE_TEST_CRASH_FILE"

const (
	crashKeys  = 400
	crashKills = 20
)

// crashChild works through all keys, in an order of its own, and says on its
// output what it would acknowledge: "tx" for effects in transactions, "claim" for
// records that were claimed and completed.
func crashChild(file string) {
	err := func() error {
		l, closeAll, err := openLedger(file)
		if err != nil {
			return err
		}
		defer closeAll()
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { errs[i] = crashWorker(l) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func crashWorker(l *ledger) error {
	ctx := context.Background()
	do := sqlstore.TxDo(l.Store, "book", book)
	for _, n := range rand.Perm(crashKeys) {
		key := fmt.Sprint("k", n)
		if err := do(oncepipe.WithKey(ctx, key), key); err != nil {
			return err
		}
		if _, err := fmt.Println("tx", key); err != nil {
			return err
		}
		req := newRequest(key)
		answers, err := l.Claim(ctx, []oncepipe.ClaimRequest{req})
		if err != nil {
			return err
		}
		if answers[0].Status != oncepipe.ClaimAcquired {
			continue
		}
		held, err := l.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim, Result: []byte(key), HasResult: true}})
		if err != nil || !held[0] {
			return fmt.Errorf("complete %s: %v, %w", key, held, err)
		}
		if _, err := fmt.Println("claim", key); err != nil {
			return err
		}
	}
	return nil
}

// openLedger is for processes without a test.
func openLedger(file string) (l *ledger, closeAll func(), err error) {
	db, err := sql.Open("sqlite", dsn(file))
	if err != nil {
		return nil, nil, err
	}
	st, err := sqlstore.Open(context.Background(), db, sqlstore.Config{})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return &ledger{st, db}, func() { st.Close(); db.Close() }, nil
}

// A process is killed again and again in the middle of its transactions. Nothing
// that it acknowledged is lost, no effect is there without its record or the
// record without the effect, and in the end every effect is there once.
func TestR62_KillsInTheMiddleOfTransactions(t *testing.T) {
	file := newFile(t)
	l := newLedger(t, openDB(t, dsn(file), 0), sqlstore.Config{})
	var acked []string
	for kill := range crashKills {
		lines := killedRun(t, file, 1+rand.IntN(60))
		checkAcked(t, l, lines)
		acked = append(acked, lines...)
		effects := count(t, l.db, "SELECT count(*) FROM ledger")
		records := count(t, l.db, "SELECT count(*) FROM oncepipe_records WHERE ns = CAST('book' AS BLOB)")
		if effects != records {
			t.Errorf("kill %d: %d effects and %d records", kill, effects, records)
		}
	}
	checkAcked(t, l, acked)
	if len(acked) < crashKills/2 {
		t.Errorf("only %d acknowledged before the kills", len(acked))
	}
	for n := range crashKeys {
		key := fmt.Sprint("k", n)
		if err := sqlstore.TxDo(l.Store, "book", book)(oncepipe.WithKey(t.Context(), key), key); err != nil {
			t.Error(err)
		}
		l.check(t, key, 1, oncepipe.StateCompleted)
	}
	if n := count(t, l.db, "SELECT count(*) FROM ledger"); n != crashKeys {
		t.Errorf("%d effects of %d keys", n, crashKeys)
	}
}

// checkAcked checks that what was acknowledged is there.
func checkAcked(t *testing.T, l *ledger, lines []string) {
	t.Helper()
	for _, line := range lines {
		switch what, key, _ := strings.Cut(line, " "); what {
		case "tx":
			l.check(t, key, 1, oncepipe.StateCompleted)
		case "claim":
			if s := stateOf(t, l, "step", key); s != oncepipe.StateCompleted {
				t.Errorf("%s was completed and is %v", key, s)
			}
		default:
			t.Errorf("line %q", line)
		}
	}
}

// killedRun starts a process, kills it when it has acknowledged n times, and
// returns all that it acknowledged.
func killedRun(t *testing.T, file string, n int) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), crashFile+"="+file)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		if lines = append(lines, scanner.Text()); len(lines) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("not killed: %v after %d lines\n%s", err, len(lines), stderr.String())
	}
	return lines
}
