package storetest_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/oncetest/internal/storetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// mutant is a wrong store, a type of its own.
type mutant struct {
	of   func(good *memstore.Store) oncepipe.Store
	rule string // the number of one that must catch it
}

// name is that of its type.
func (m mutant) name() string {
	t := reflect.TypeOf(m.of(memstore.New(memstore.Config{})))
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

// good is what they are made of.
var good = mutant{of: func(good *memstore.Store) oncepipe.Store { return good }}

var mutants = slices.Concat(claimMutants, batchMutants, writeMutants, handMutants, retentionMutants, keyMutants, listMutants)

const insideVariable = "STORETEST_INSIDE"

// verdicts are the numbers of the rules that a store kept and broke.
type verdicts struct{ kept, broken []string }

// caught checks that every mutant is caught by a rule that is about its fault, the
// store that they are made of by none, and that there is no rule that no mutant breaks.
func caught(t *testing.T, of map[string]verdicts) {
	t.Helper()
	idle := map[string]bool{}
	for _, r := range storetest.Rules() {
		idle[r.Number] = true
	}
	if good := of["Store"]; len(good.kept) != len(idle) || len(good.broken) > 0 {
		t.Errorf("the good store kept %d rules of %d and broke %q", len(good.kept), len(idle), good.broken)
	}
	for _, m := range mutants {
		v := of[m.name()]
		if got := len(v.kept) + len(v.broken); got != len(storetest.Rules()) {
			t.Errorf("%s met %d rules of %d", m.name(), got, len(storetest.Rules()))
		}
		if !slices.Contains(v.broken, m.rule) {
			t.Errorf("%s was not caught by %s; only by %q", m.name(), m.rule, v.broken)
		}
		for _, number := range v.broken {
			delete(idle, number)
		}
		t.Logf("%s was caught by %s", m.name(), strings.Join(v.broken, ", "))
	}
	if len(idle) > 0 {
		t.Errorf("no mutant breaks %v", slices.Sorted(maps.Keys(idle)))
	}
	t.Logf("%d mutants, %d rules", len(mutants), len(storetest.Rules()))
}

// failing runs the calling test once more, with inside, in a process of its own:
// it has to fail, and may not end by a panic or by running too long.
func failing(t *testing.T, inside func()) (output string) {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		inside()
		t.SkipNow() // of what the caller does with the output
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), insideVariable+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("no rule failed at all")
	}
	output = string(out)
	if !strings.Contains(output, "--- FAIL: "+t.Name()+" (") || strings.Contains(output, "panic: ") || strings.Contains(output, "DATA RACE") {
		t.Fatalf("did not come to an end of its own:\n%s", output)
	}
	return output
}

var subtest = regexp.MustCompile(`--- (PASS|FAIL): TestMutants/([^/\s]+)/(S[0-9.]+)_\S+ \(`)

// oncetest.Store catches every mutant.
func TestMutants(t *testing.T) {
	output := failing(t, func() {
		for _, m := range append([]mutant{good}, mutants...) {
			t.Run(m.name(), func(t *testing.T) { oncetest.Store(t, m.check) })
		}
	})
	of := map[string]verdicts{}
	for _, m := range subtest.FindAllStringSubmatch(output, -1) {
		v := of[m[2]]
		if m[1] == "PASS" {
			v.kept = append(v.kept, m[3])
		} else {
			v.broken = append(v.broken, m[3])
		}
		of[m[2]] = v
	}
	caught(t, of)
}

var ruleError = regexp.MustCompile(`(?m)^(S[0-9]+\.[0-9]+) `)

// oncetest.CheckStore does, too.
func TestMutants_CheckStore(t *testing.T) {
	of := map[string]verdicts{}
	for _, m := range append([]mutant{good}, mutants...) {
		broken := map[string]bool{}
		err := oncetest.CheckStore(func(check func(oncetest.StoreEnv)) error {
			m.check(t, func(_ *testing.T, env oncetest.StoreEnv) { check(env) })
			return nil
		})
		if err != nil {
			for _, found := range ruleError.FindAllStringSubmatch(err.Error(), -1) {
				broken[found[1]] = true
			}
		}
		var v verdicts
		for _, r := range storetest.Rules() {
			if broken[r.Number] {
				v.broken = append(v.broken, r.Number)
			} else {
				v.kept = append(v.kept, r.Number)
			}
		}
		of[m.name()] = v
	}
	caught(t, of)
}

// Where nothing is checked no rule passes.
func TestStore_WithoutCheck(t *testing.T) {
	output := failing(t, func() { oncetest.Store(t, func(*testing.T, func(*testing.T, oncetest.StoreEnv)) {}) })
	if n := strings.Count(output, "    --- FAIL: "+t.Name()+"/S"); n != len(storetest.Rules()) {
		t.Errorf("%d rules failed, want all %d", n, len(storetest.Rules()))
	}
}

func TestMutants_AreTypes(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name()] || !strings.HasPrefix(m.name(), "mutant") {
			t.Errorf("%s is not a type of its own", m.name())
		}
		names[m.name()] = true
	}
}

// clock is the store's. It is not that of the bubble, which is the client's.
type clock struct{ past atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.past.Load()) }
func (c *clock) advance(d time.Duration) { c.past.Add(int64(d)) }

// check is for oncetest.Store.
func (m mutant) check(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		st := m.of(memstore.New(memstore.Config{Retention: retention, MaxResult: maxResult, Now: c.now}))
		check(t, oncetest.StoreEnv{Store: st, Advance: c.advance, Retention: retention, MaxResult: maxResult})
	})
}

const (
	retention = time.Hour
	maxResult = 1000
)

// changed is a copy of a batch with a change of every request.
func changed[Q any](reqs []Q, change func(*Q)) []Q {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		change(&reqs[i])
	}
	return reqs
}

// oneByOne makes a call for every request of a batch.
func oneByOne[Q, A any](reqs []Q, call func(Q) ([]A, error)) ([]A, error) {
	var all []A
	for _, req := range reqs {
		answers, err := call(req)
		if err != nil {
			return nil, err
		}
		all = append(all, answers...)
	}
	return all, nil
}

// claimEach is oneByOne for claims. A batch with a request that can't be meant is
// left to the good store, which refuses it whole.
func claimEach(ctx context.Context, good *memstore.Store, reqs []oncepipe.ClaimRequest, call func(oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error)) ([]oncepipe.ClaimAnswer, error) {
	if slices.ContainsFunc(reqs, func(r oncepipe.ClaimRequest) bool {
		return r.Key == "" || r.Claim == (oncepipe.ClaimID{}) || r.Lease <= 0
	}) {
		return good.Claim(ctx, reqs)
	}
	return oneByOne(reqs, call)
}

// memory is a good store that remembers who acquired what, as wrong ones need it.
type memory struct {
	*memstore.Store
	mu     sync.Mutex
	latest map[oncepipe.RecordID]oncepipe.ClaimRequest
}

func remember(good *memstore.Store) *memory {
	return &memory{Store: good, latest: map[oncepipe.RecordID]oncepipe.ClaimRequest{}}
}

func (m *memory) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, a := range answers {
		if a.Status == oncepipe.ClaimAcquired {
			m.latest[reqs[i].RecordID] = reqs[i]
		}
	}
	return answers, err
}

// owner is the claim that acquired a record last.
func (m *memory) owner(id oncepipe.RecordID) oncepipe.ClaimID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest[id].Claim
}

func (m *memory) ids() []oncepipe.RecordID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.latest))
}

// look is Lookup of one.
func look(ctx context.Context, st oncepipe.Store, id oncepipe.RecordID) (oncepipe.Record, error) {
	recs, err := st.Lookup(ctx, []oncepipe.RecordID{id})
	if err != nil {
		return oncepipe.Record{}, err
	}
	return recs[0], nil
}

// rewrite makes a record new and lets claim acquire it.
func rewrite(ctx context.Context, st oncepipe.Store, req oncepipe.ClaimRequest) error {
	if _, err := st.Forget(ctx, []oncepipe.RecordID{req.RecordID}, true); err != nil {
		return fmt.Errorf("rewrite: %w", err)
	}
	if _, err := st.Claim(ctx, []oncepipe.ClaimRequest{req}); err != nil {
		return fmt.Errorf("rewrite: %w", err)
	}
	return nil
}
