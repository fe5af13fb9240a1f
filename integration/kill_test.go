package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	killEnv     = "ONCEPIPE_KILLS"
	killCrew    = 3  // workers at the same time
	killPortion = 12 // keys of each mode that come with each worker
)

var killLimits = limits{Lease: 700 * time.Millisecond, Attempt: 20 * time.Second}

// wantedKills is how many workers are killed at least.
func wantedKills(t testing.TB) int {
	t.Helper()
	text := os.Getenv(killEnv)
	if text == "" {
		return 50
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", killEnv, err)
	}
	return n
}

// Worker processes are killed at every point of their work, and at any moment,
// on a database that three of them share, until a ledger of thousands of keys is done.
func TestKillNine(t *testing.T) {
	forEngines(t, engines, func(t *testing.T, e engine) {
		k := newKilling(t, e, nil)
		var plan []orders
		for _, m := range k.check.modes() {
			for _, p := range points {
				plan = append(plan, orders{Mode: m, Point: p, Count: 1 + rand.IntN(2)})
			}
		}
		for n := range 3 {
			plan = append(plan, orders{Point: inPrune, Count: n + 1})
		}
		for len(plan) < wantedKills(t) {
			plan = append(plan, orders{Count: 1 + rand.IntN(3*killPortion)}) // at any moment
		}
		rand.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
		k.run(plan)
		k.report(t)
	})
}

// R62 is about processes that end in the middle of a transaction.
func TestR62_KillsInTheMiddleOfTransactions(t *testing.T) {
	k := newKilling(t, engines[0], txModes)
	var plan []orders
	for _, m := range txModes {
		for _, p := range []string{afterClaim, inEffect, beforeCommit, afterCommit} {
			plan = append(plan, orders{Mode: m, Point: p, Count: 2})
		}
	}
	k.run(plan)
	for m, s := range k.summary(t) {
		s.judge(t, m)
	}
	if k.kills < len(plan) {
		t.Errorf("%d kills, want %d", k.kills, len(plan))
	}
}

// TestKillNine can fail: it sees what is wrong with an effect and a record that are two
// transactions.
func TestKillNine_SeesTwoTransactions(t *testing.T) {
	for _, m := range []mutant{effectFirst, recordFirst} {
		t.Run(string(m), func(t *testing.T) {
			k := newKilling(t, engines[0], []mode{inTx})
			k.mutant = m
			k.run(slices.Repeat([]orders{{Mode: inTx, Point: beforeCommit, Count: 3}}, 3))
			s := k.summary(t)[inTx]
			t.Log(s)
			if m == effectFirst && s.double == 0 || m == recordFirst && s.lost == 0 {
				t.Errorf("%s was not seen: %v", m, s)
			}
		})
	}
}

// killing is a ledger of keys that are handed out to workers until each is
// acked.
type killing struct {
	*ledgers
	t      *testing.T
	dsn    string
	engine engine
	mutant mutant
	only   []mode // nil for all

	mu    sync.Mutex
	plan  []orders // that are left
	kills int
	keys  int
}

func newKilling(t *testing.T, e engine, only []mode) *killing {
	t.Helper()
	k := &killing{t: t, engine: e, dsn: e.shared(t), only: only}
	k.ledgers = newLedgers(t, e, k.dsn)
	return k
}

// run lets the crew work, each worker killed by a plan, until all plans are
// carried out, and then without one until all keys are acked.
func (k *killing) run(plan []orders) {
	k.plan = plan
	var crew sync.WaitGroup
	for range killCrew {
		crew.Go(func() {
			for o, ok := k.next(); ok; o, ok = k.next() {
				if !k.work(o) && !k.t.Failed() {
					k.later(o) // others had done it all before the point was reached
				}
			}
		})
	}
	crew.Wait()
	for range 2 {
		crew.Go(func() { k.work(orders{}) })
	}
	crew.Wait()
}

func (k *killing) next() (o orders, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.plan) == 0 || k.t.Failed() {
		return o, false
	}
	o, k.plan = k.plan[0], k.plan[1:]
	return o, true
}

func (k *killing) later(o orders) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o.Count = max(1, o.Count-1)
	k.plan = append(k.plan, o)
}

// work runs a worker on all keys that are not acked, and some new ones where it
// is to be killed, and says whether it was.
func (k *killing) work(o orders) (killed bool) {
	o.Engine, o.DSN, o.Service, o.Limits, o.Mutant = k.engine.name, k.dsn, k.service.URL, killLimits, k.mutant
	count := 0 // of lines, after which we kill
	if o.Point == "" {
		count = o.Count
	}
	if o.Count > 0 {
		k.grow()
	}
	raw, err := json.Marshal(o)
	if err != nil {
		k.t.Error(err)
		return false
	}
	exe, err := os.Executable()
	if err != nil {
		k.t.Error(err)
		return false
	}
	cmd := exec.CommandContext(k.t.Context(), exe)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(raw), "GORACE=atexit_sleep_ms=0")
	cmd.Stdin = strings.NewReader(k.unacked())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		k.t.Error(err)
		return false
	}
	k.listen(out, count, cmd.Process)
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.kills++
		return true
	}
	if err != nil {
		k.t.Errorf("worker %+v: %v\n%s", o, err, stderr.String())
	}
	return false
}

// listen notes what a worker acks, and kills it when that are count keys.
func (k *killing) listen(out io.Reader, count int, p *os.Process) {
	lines := bufio.NewScanner(out)
	for n := 1; lines.Scan(); n++ {
		m, rest, _ := strings.Cut(lines.Text(), " ")
		key, outcome, _ := strings.Cut(rest, " ")
		if n == count {
			if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				k.t.Error(err)
			}
		}
		if err := k.acked(mode(m), key, outcome); err != nil {
			k.t.Error(err)
		}
	}
	if err := lines.Err(); err != nil {
		k.t.Error(err)
	}
}

// grow adds keys to each ledger, and to the store some records that are over, for
// Prune to have something to do.
func (k *killing) grow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	modes := k.only
	if modes == nil {
		modes = k.check.modes()
	}
	for range killPortion {
		k.keys++
		for _, m := range modes {
			k.open(m, fmt.Sprint("key", k.keys))
		}
	}
	if err := k.outdate(k.t.Context(), k.keys); err != nil {
		k.t.Error(err)
	}
}

// unacked lists the keys that are not acked.
func (k *killing) unacked() string {
	var b strings.Builder
	for m, keys := range k.left() {
		for _, key := range keys {
			fmt.Fprintf(&b, "%s %s\n", m, key)
		}
	}
	return b.String()
}

func (k *killing) report(t *testing.T) {
	t.Helper()
	k.print(t, fmt.Sprintf("kills=%d ", k.kills))
	if n := wantedKills(t); k.kills < n {
		t.Errorf("%d kills, want %d", k.kills, n)
	}
}
